#include "measure.h"

#include <algorithm>

#include "console.h"

namespace cli {
namespace {

constexpr size_t kMeasured = 256;  // images whose sizes are used
// Images of each set to decode. A number, not a time, so that every machine writes the same job.
constexpr int64_t kMostLooked = 1000;
constexpr int64_t kAnyNumber = 1e12;  // of bad records, which are only counted here

const Json kLabel{{"stage", "label"}, {"classes", 1 << 24}};  // the maximum that the stage takes
const Json kLook =
    Json::array({{{"stage", "take"}, {"count", kMostLooked}}, kLabel, {{"stage", "decode"}}});

// Reads a source to its end. Leaves out bad records and returns them.
template <typename Look>
std::vector<LeftOut> for_each_sample(const Json& source, const std::string& data,
                                     const Json& stages, Look look) {
  Json all = Json::array({source});
  for (auto& [key, value] : all[0].items())
    if (value.is_string())
      if (const std::string text = value; text.starts_with(kDataVariable))
        value = data + text.substr(kDataVariable.size());
  all.insert(all.end(), stages.begin(), stages.end());
  const Json spec{
      {"stages", all}, {"epochs", 1}, {"on_error", "skip"}, {"max_bad_records", kAnyNumber}};
  Pipeline pipeline;
  check(etr_pipeline_create_from_json(spec.dump().c_str(), pipeline.out()));
  while (true) {
    Batch sample;
    if (!next_batch(pipeline, sample)) return bad_records(pipeline);
    look(sample);
  }
}

void count(const Batch& sample, Measured& out) {
  const auto label = static_cast<size_t>(*static_cast<const int32_t*>(field(sample, "label").data));
  if (label >= out.of_class.size()) out.of_class.resize(label + 1);
  ++out.of_class[label];
  ++out.samples;
}

template <typename Look>
Looked look_at(const Json& source, const std::string& data, ProgressLine& line,
               std::vector<LeftOut>& damaged, Look look) {
  Looked out;
  const auto bad = for_each_sample(source, data, kLook, [&](const Batch& sample) {
    ++out.good;
    look(sample);
    line.show(progress_text("looking at images", out.good, -1, 0));
  });
  out.bad = static_cast<int64_t>(bad.size());
  damaged.insert(damaged.end(), bad.begin(), bad.end());
  return out;
}

void look_at_training(const DataSet& set, const std::string& data, ProgressLine& line,
                      Measured& out) {
  out.looked = look_at(set.train, data, line, out.damaged, [&](const Batch& sample) {
    count(sample, out);
    const etr_tensor image = field(sample, "image");
    if (out.heights.size() < kMeasured) {
      out.heights.push_back(image.shape[0]);
      out.widths.push_back(image.shape[1]);
      out.color = out.color || image.shape[2] == 3;
    }
  });
}

void count_all(const DataSet& set, const std::string& data, ProgressLine& line, Measured& out) {
  out.samples = 0;
  out.of_class.clear();
  for_each_sample(set.train, data, Json::array({kLabel}), [&](const Batch& sample) {
    count(sample, out);
    if (out.samples % 1000 == 0) line.show(progress_text("counting", out.samples, -1, 0));
  });
}

void look_at_validation(const DataSet& set, const std::string& data, ProgressLine& line,
                        Measured& out) {
  if (set.validation.is_null()) return;
  out.looked_held_out = look_at(set.validation, data, line, out.damaged, [](const Batch&) {});
  out.held_out = out.looked_held_out.good;
  if (out.looked_held_out.all() < kMostLooked) return;
  out.held_out = 0;
  for_each_sample(set.validation, data, Json::array({kLabel}),
                  [&](const Batch&) { ++out.held_out; });
}

}  // namespace

double Looked::bad_share() const {
  return static_cast<double>(bad) / static_cast<double>(std::max<int64_t>(all(), 1));
}

bool Measured::uniform() const {
  const auto same = [](const std::vector<int64_t>& v) {
    return std::all_of(v.begin(), v.end(), [&](int64_t x) { return x == v[0]; });
  };
  return same(heights) && same(widths);
}

int64_t Measured::side() const {
  std::vector<int64_t> sides;
  for (size_t i = 0; i < heights.size(); ++i) sides.push_back(std::min(heights[i], widths[i]));
  std::nth_element(sides.begin(), sides.begin() + static_cast<std::ptrdiff_t>(sides.size() / 2),
                   sides.end());
  return sides[sides.size() / 2];
}

Measured measure(const DataSet& set, const std::string& data) {
  Measured out;
  ProgressLine line;
  look_at_training(set, data, line, out);
  if (out.heights.empty()) {
    line.erase();
    print_left_out(out.damaged);
    throw Failure("'" + data + "' has no image that can be decoded");
  }
  if (out.looked.all() >= kMostLooked) count_all(set, data, line, out);
  look_at_validation(set, data, line, out);
  line.erase();
  return out;
}

}  // namespace cli
