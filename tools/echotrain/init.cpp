// echotrain init: looks at a folder of images or shards and writes a job for it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "arguments.h"
#include "cli.h"
#include "console.h"
#include "measure.h"
#include "terminal.h"
#include "warnings.h"

namespace cli {
namespace {

constexpr int64_t kMostBatch = 64, kLeastBatch = 8;
constexpr double kBadShare = 0.1;  // the least share of damaged images that a job tolerates

struct Plan {
  int64_t classes, batch, steps, height, width;
  bool resizes;  // resizes images to this size; else all have it already
  Json model;
  bool flips;
};

// Returns the batch size. Batch normalization needs more than one sample in each batch.
int64_t batch_for(int64_t samples) {
  int64_t batch = kMostBatch;
  while (batch > kLeastBatch && batch * 8 > samples) batch /= 2;
  while (batch > 1 && batch > samples) batch /= 2;
  return batch;
}

int64_t classes_of(const DataSet& set, const Measured& m) {
  const auto labels = static_cast<int64_t>(m.of_class.size()),
             names = static_cast<int64_t>(set.classes.size());
  if (names > 0 && labels > names)
    throw Failure("a sample has the label " + std::to_string(labels - 1) +
                  ", but classes.txt lists " + counted(names, "class", "classes") +
                  "; 'pack' writes that file beside the shards");
  if (std::count_if(m.of_class.begin(), m.of_class.end(), [](int64_t n) { return n > 0; }) < 2)
    throw Failure("there are images of one class only, and nothing to tell apart: each class needs a "
                  "folder of its own, with images");
  return std::max(names, labels);
}

Plan plan_for(const DataSet& set, const Measured& m, int64_t epochs) {
  Plan plan{};
  plan.classes = classes_of(set, m);
  plan.batch = batch_for(m.samples);
  plan.steps = std::max<int64_t>(1, epochs * (m.samples / plan.batch));
  const int64_t side = m.side();
  plan.resizes = !m.uniform() || side > 64;
  plan.height = plan.resizes ? (side <= 48 ? 32 : side <= 128 ? 64 : 128) : m.heights[0];
  plan.width = plan.resizes ? plan.height : m.widths[0];
  if (side <= 128)
    plan.model = {
        {"model", "cifar_resnet"}, {"depth", side <= 48 ? 8 : 20}, {"classes", plan.classes}};
  else
    plan.model = {{"model", "resnet"}, {"depth", 18}, {"classes", plan.classes}};
  // A mirrored letter or digit is a different one, or none at all.
  plan.flips = !std::all_of(set.classes.begin(), set.classes.end(),
                            [](const std::string& name) { return name.size() == 1; });
  return plan;
}

Json decode_stage(const Measured& m) {
  return {{"stage", "decode"}, {"channels", m.color ? "rgb" : "gray"}};
}

// Adds stages that resize images to the model's size; images of that size are not changed.
void add_resizing(Json& stages, const Plan& plan) {
  if (plan.height != plan.width) {
    stages.push_back({{"stage", "resize"}, {"height", plan.height}, {"width", plan.width}});
    return;
  }
  stages.push_back({{"stage", "resize"}, {"shorter_side", plan.height}});
  stages.push_back({{"stage", "center_crop"}, {"height", plan.height}, {"width", plan.width}});
}

Json training_stages(const DataSet& set, const Measured& m, const Plan& plan) {
  Json out =
      Json::array({set.train, {{"stage", "label"}, {"classes", plan.classes}}, decode_stage(m)});
  if (plan.resizes) {
    out.push_back({{"stage", "random_resized_crop"},
                   {"height", plan.height},
                   {"width", plan.width},
                   {"area_min", 0.35}});
  } else {
    add_resizing(out, plan);
    out.push_back({{"stage", "random_crop"}, {"pad", std::max<int64_t>(1, m.side() / 8)}});
  }
  if (plan.flips) out.push_back({{"stage", "flip"}});
  if (set.in_order) out.push_back({{"stage", "shuffle"}, {"buffer", 2000}, {"initial", 200}});
  out.push_back({{"stage", "batch"}, {"size", plan.batch}});
  out.push_back({{"stage", "normalize"}});
  return out;
}

Json evaluation_stages(const DataSet& set, const Measured& m, const Plan& plan) {
  Json out = Json::array(
      {set.validation, {{"stage", "label"}, {"classes", plan.classes}}, decode_stage(m)});
  add_resizing(out, plan);
  out.push_back({{"stage", "batch"}, {"size", plan.batch}, {"drop_remainder", false}});
  out.push_back({{"stage", "normalize"}});
  return out;
}

// A damaged image should not end a long run, but many of them should.
Json pipeline_of(int64_t samples, const Looked& looked, Json stages) {
  const double share = std::clamp(2 * looked.bad_share(), kBadShare, 1.0);
  return {{"on_error", "skip"},
          {"max_bad_records", std::max<int64_t>(1000, samples)},
          {"max_bad_share", std::round(100 * share) / 100},
          {"stages", std::move(stages)}};
}

Json job_of(const DataSet& set, const Measured& m, const Plan& plan, const std::string& name,
            const std::string& data) {
  Json job{{"name", name},
           {"vars", {{"data", data}, {"out", "runs/" + name}}},
           {"seed", 1},
           {"pipeline", pipeline_of(m.samples, m.looked, training_stages(set, m, plan))},
           {"model", plan.model},
           {"optimizer", {{"optimizer", "adamw"}, {"weight_decay", 0.05}, {"clip_norm", 1}}},
           {"schedule", {{"schedule", "one_cycle"}, {"learning_rate", 0.003}}},
           {"train", {{"steps", plan.steps}}}};
  if (!set.validation.is_null())
    job["evaluation"] = {
        {"pipeline", pipeline_of(m.held_out, m.looked_held_out, evaluation_stages(set, m, plan))}};
  job["output"] = {{"dir", "${out}"}};
  if (!set.classes.empty()) job["classes"] = set.classes;
  return job;
}

// Formats JSON with stages and names on lines of their own, without a line for every bracket.
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

void note(const std::string& text) { std::printf("note: %s\n", text.c_str()); }

// Lists classes without an image, and those of which nothing is held out.
void print_small_classes(const DataSet& set, const Measured& m) {
  const auto name = [&](size_t label) {
    return label < set.classes.size() ? set.classes[label] : std::to_string(label);
  };
  std::string empty, single;
  for (size_t label = 0; label < std::max(set.classes.size(), m.of_class.size()); ++label) {
    const int64_t images = label < m.of_class.size() ? m.of_class[label] : 0;
    if (images > 1) continue;
    std::string& names = images == 0 ? empty : single;
    names += (names.empty() ? "'" : ", '") + name(label) + "'";
  }
  if (!empty.empty())
    note("no image to train on is of class " + empty +
         ", which stays a class; remove its folder and run 'init' again if it should not");
  if (!single.empty()) note("there is one image only to train on of class " + single);
}

void print_damage(const Measured& m) {
  print_left_out(m.damaged);
  if (!m.all_looked_at())
    std::printf("looked at %lld of %s; the others are counted and not decoded\n",
                static_cast<long long>(m.looked.all()), counted(m.samples, "image").c_str());
  if (!m.damaged.empty())
    note(
        "the job leaves such files out and counts them (on_error); 'max_bad_share' ends a run with "
        "too many");
}

void print_validation(const DataSet& set, const Measured& m) {
  const std::string without = ", so the job has no evaluation and 'eval' has nothing to do; ";
  if (set.validation.is_null() && set.train["stage"] == "folder")
    note("there is nothing to hold out for validation" + without +
         "add images until a class has two, or a folder 'validation' beside 'train'");
  else if (set.validation.is_null())
    note("there is no validation set" + without + "'pack --validation 0.1' sets one aside");
  else
    std::printf("%s to evaluate on\n", counted(m.held_out, "image").c_str());
}

void print_findings(const DataSet& set, const Measured& m, const Plan& plan) {
  for (const std::string& text : set.notes) note(text);
  print_damage(m);
  std::printf("%s of %s to train on, %s", counted(m.samples, "image").c_str(),
              counted(plan.classes, "class", "classes").c_str(), m.color ? "colour" : "gray");
  if (m.uniform())
    std::printf(", %lld x %lld\n", static_cast<long long>(m.widths[0]),
                static_cast<long long>(m.heights[0]));
  else
    std::printf(", of several sizes, %lld pixels on the shorter side\n",
                static_cast<long long>(m.side()));
  print_validation(set, m);
  print_small_classes(set, m);
  std::printf("model %s-%d on %lld x %lld, %s of %lld\n",
              plan.model["model"].get<std::string>().c_str(), plan.model["depth"].get<int>(),
              static_cast<long long>(plan.width), static_cast<long long>(plan.height),
              counted(plan.steps, "step").c_str(), static_cast<long long>(plan.batch));
}

}  // namespace

int command_init(const Arguments& arguments) {
  std::string data = arguments.operand(0);
  while (data.size() > 1 && data.back() == '/') data.pop_back();
  const std::string path = arguments.operands().size() > 1 ? arguments.operand(1) : "job.json";
  std::error_code unknown;
  if (std::filesystem::exists(path, unknown) && !arguments.flag("overwrite"))
    throw Failure("'" + path + "' exists; name another file, or replace it with --overwrite");
  const int64_t epochs = arguments.integer("epochs").value_or(20);
  if (epochs < 1) throw UsageError("--epochs must be at least 1");
  const InterruptGuard guard;
  print_warnings(BadRecords::hidden);
  DataSet set = find_data_set(data);
  const Measured measured = measure(set, data);
  if (measured.held_out == 0) set.validation = nullptr;
  const Plan plan = plan_for(set, measured, epochs);
  const std::string name = std::filesystem::path(path).stem().string();
  const std::string text = layout(job_of(set, measured, plan, name, data)) + "\n";
  Job job;
  check(etr_job_parse(text.c_str(), nullptr, 0, job.out()));
  print_findings(set, measured, plan);
  write_file(path, text);
  std::printf("next: echotrain train %s\n", as_word(path).c_str());
  return 0;
}

}  // namespace cli
