// echotrain init: looks at a folder of images or shards and writes a job for it.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "arguments.h"
#include "cli.h"
#include "console.h"
#include "data_set.h"

namespace cli {
namespace {

constexpr int kMeasured = 256;  // images that are looked at
constexpr int64_t kMostBatch = 64;

struct Measured {
  int64_t samples = 0, most_label = -1;
  std::vector<int64_t> heights, widths;  // of some
  bool color = false;

  bool uniform() const {
    const auto same = [](const std::vector<int64_t>& v) {
      return std::all_of(v.begin(), v.end(), [&](int64_t x) { return x == v[0]; });
    };
    return same(heights) && same(widths);
  }
  // The median of the shorter sides.
  int64_t side() const {
    std::vector<int64_t> sides;
    for (size_t i = 0; i < heights.size(); ++i) sides.push_back(std::min(heights[i], widths[i]));
    std::nth_element(sides.begin(), sides.begin() + static_cast<std::ptrdiff_t>(sides.size() / 2),
                     sides.end());
    return sides[sides.size() / 2];
  }
};

// Calls `look` with each sample of a pipeline until it returns false.
template <typename Look>
void for_each_sample(const Json& source, const std::string& data, const Json& stages, Look look) {
  Json all = Json::array({source});
  for (auto& [key, value] : all[0].items())
    if (value.is_string())
      if (const std::string text = value; text.rfind("${data}", 0) == 0)
        value = data + text.substr(7);
  all.insert(all.end(), stages.begin(), stages.end());
  const Json spec{{"stages", all}, {"epochs", 1}, {"on_error", "skip"}};
  Pipeline pipeline;
  check(etr_pipeline_create_from_json(spec.dump().c_str(), pipeline.out()));
  while (true) {
    if (interrupted()) throw Interrupted{};
    Batch sample;
    if (check(etr_pipeline_next(pipeline.get(), sample.out())) == ETR_END || !look(sample)) return;
  }
}

etr_tensor field(const Batch& sample, const char* name) {
  etr_tensor out{};
  out.struct_size = sizeof out;
  check(etr_batch_get(sample.get(), name, &out));
  return out;
}

Measured measure(const DataSet& set, const std::string& data) {
  Measured out;
  ProgressLine line;
  for_each_sample(set.train, data, Json::array({{{"stage", "label"}}}), [&](const Batch& sample) {
    const auto label = *static_cast<const int32_t*>(field(sample, "label").data);
    out.most_label = std::max<int64_t>(out.most_label, label);
    if (++out.samples % 1000 == 0) line.show(progress_text("counting", out.samples, -1, 0));
    return true;
  });
  for_each_sample(set.train, data, Json::array({{{"stage", "decode"}}}), [&](const Batch& sample) {
    const etr_tensor image = field(sample, "image");
    out.heights.push_back(image.shape[0]);
    out.widths.push_back(image.shape[1]);
    out.color = out.color || image.shape[2] == 3;
    return out.heights.size() < kMeasured;
  });
  line.erase();
  if (out.heights.empty()) throw Failure("'" + data + "' has no image that can be decoded");
  return out;
}

struct Plan {
  int64_t classes, batch, steps, side;  // side 0: images keep their size
  Json model;
  bool flips;
};

Plan plan_for(const DataSet& set, const Measured& m, int64_t epochs) {
  Plan plan{};
  plan.classes = std::max(static_cast<int64_t>(set.classes.size()), m.most_label + 1);
  if (plan.classes < 2) throw Failure("there is one class only: nothing to tell apart");
  int64_t train = m.samples;
  for (plan.batch = kMostBatch; plan.batch > 1 && plan.batch * 8 > train;) plan.batch /= 2;
  plan.steps = std::max<int64_t>(1, epochs * (train / plan.batch));
  const int64_t side = m.side();
  plan.side = m.uniform() && side <= 64 ? 0 : side <= 48 ? 32 : side <= 128 ? 64 : 128;
  if (plan.side <= 64)
    plan.model = {
        {"model", "cifar_resnet"}, {"depth", side <= 48 ? 8 : 20}, {"classes", plan.classes}};
  else
    plan.model = {{"model", "resnet"}, {"depth", 18}, {"classes", plan.classes}};
  // Mirrored, a letter or a digit is another one or none.
  plan.flips = !std::all_of(set.classes.begin(), set.classes.end(),
                            [](const std::string& name) { return name.size() == 1; });
  return plan;
}

Json decode_stage(const Measured& m) {
  return {{"stage", "decode"}, {"channels", m.color ? "rgb" : "gray"}};
}

Json training_stages(const DataSet& set, const Measured& m, const Plan& plan) {
  Json out =
      Json::array({set.train, {{"stage", "label"}, {"classes", plan.classes}}, decode_stage(m)});
  if (plan.side > 0)
    out.push_back({{"stage", "random_resized_crop"},
                   {"height", plan.side},
                   {"width", plan.side},
                   {"area_min", 0.35}});
  else
    out.push_back({{"stage", "random_crop"}, {"pad", std::max<int64_t>(1, m.side() / 8)}});
  if (plan.flips) out.push_back({{"stage", "flip"}});
  if (set.in_order) out.push_back({{"stage", "shuffle"}, {"buffer", 2000}});
  out.push_back({{"stage", "batch"}, {"size", plan.batch}});
  out.push_back({{"stage", "normalize"}});
  return out;
}

Json evaluation_stages(const DataSet& set, const Measured& m, const Plan& plan) {
  Json out = Json::array(
      {set.validation, {{"stage", "label"}, {"classes", plan.classes}}, decode_stage(m)});
  if (plan.side > 0) {
    out.push_back({{"stage", "resize"}, {"shorter", plan.side}});
    out.push_back({{"stage", "center_crop"}, {"height", plan.side}, {"width", plan.side}});
  }
  out.push_back({{"stage", "batch"}, {"size", plan.batch}, {"drop_remainder", false}});
  out.push_back({{"stage", "normalize"}});
  return out;
}

Json job_of(const DataSet& set, const Measured& m, const Plan& plan, const std::string& name,
            const std::string& data) {
  Json job{{"name", name},
           {"vars", {{"data", data}, {"out", "runs/" + name}}},
           {"seed", 1},
           {"pipeline", {{"stages", training_stages(set, m, plan)}}},
           {"model", plan.model},
           {"optimizer", {{"optimizer", "adamw"}, {"weight_decay", 0.05}, {"clip_norm", 1}}},
           {"schedule", {{"schedule", "one_cycle"}, {"learning_rate", 0.003}}},
           {"train", {{"steps", plan.steps}}}};
  if (!set.validation.is_null())
    job["evaluation"] = {{"pipeline", {{"stages", evaluation_stages(set, m, plan)}}}};
  job["output"] = {{"dir", "${out}"}};
  if (!set.classes.empty()) job["classes"] = set.classes;
  return job;
}

// Stages and names on lines of their own, and no line for every bracket.
std::string layout(const Json& value, const std::string& indent = "") {
  if (!value.is_structured() || value.empty()) return value.dump();
  const bool object = value.is_object();
  const std::string inner = indent + "  ";
  std::string flat, lines;
  for (const auto& [key, element] : value.items()) {
    const std::string text = (object ? Json(key).dump() + ": " : "") + layout(element, inner);
    flat += (flat.empty() ? "" : ", ") + text;
    lines += (lines.empty() ? "\n" : ",\n") + inner + text;
  }
  const bool fits = flat.size() + indent.size() < 100 && flat.find('\n') == std::string::npos;
  const std::string inside = fits ? flat : lines + "\n" + indent;
  return (object ? "{" : "[") + inside + (object ? "}" : "]");
}

void print_findings(const DataSet& set, const Measured& m, const Plan& plan) {
  std::printf("%s of %s to train on, %s", counted(m.samples, "image").c_str(),
              counted(plan.classes, "class", "classes").c_str(), m.color ? "colour" : "gray");
  if (m.uniform())
    std::printf(", %lld x %lld\n", static_cast<long long>(m.widths[0]),
                static_cast<long long>(m.heights[0]));
  else
    std::printf(", of several sizes, %lld pixels on the shorter side\n",
                static_cast<long long>(m.side()));
  std::printf("model %s-%d", plan.model["model"].get<std::string>().c_str(),
              plan.model["depth"].get<int>());
  if (plan.side > 0)
    std::printf(" on %lld x %lld", static_cast<long long>(plan.side),
                static_cast<long long>(plan.side));
  std::printf(", %s of %lld\n", counted(plan.steps, "step").c_str(),
              static_cast<long long>(plan.batch));
  if (set.validation.is_null())
    std::printf(
        "note: there is no validation set, so the job has no evaluation, which 'eval' and "
        "'predict' need; "
        "'pack --validation 0.1' sets one aside\n");
}

}  // namespace

int command_init(const Arguments& arguments) {
  std::string data = arguments.operand(0);
  while (data.size() > 1 && data.back() == '/') data.pop_back();
  const std::string path = arguments.operands().size() > 1 ? arguments.operand(1) : "job.json";
  if (std::filesystem::exists(path) && !arguments.flag("overwrite"))
    throw Failure("'" + path + "' exists; name another file, or replace it with --overwrite");
  const int64_t epochs = arguments.integer("epochs").value_or(20);
  if (epochs < 1) throw UsageError("--epochs must be at least 1");
  const InterruptGuard guard;
  const DataSet set = find_data_set(data);
  const Measured measured = measure(set, data);
  const Plan plan = plan_for(set, measured, epochs);
  const std::string name = std::filesystem::path(path).stem().string();
  const std::string text = layout(job_of(set, measured, plan, name, data)) + "\n";
  Job job;
  check(etr_job_parse(text.c_str(), nullptr, 0, job.out()));
  print_findings(set, measured, plan);
  write_file(path, text);
  std::printf("next: echotrain train %s\n", path.c_str());
  return 0;
}

}  // namespace cli
