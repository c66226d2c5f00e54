#include "preparation.h"

#include <algorithm>

#include "cli.h"

namespace cli {
namespace {

// Returns the stages that prepare images, according to the library.
std::vector<std::string> preparing_stages() {
  char* text = nullptr;
  check(etr_schema("stages", &text));
  std::vector<std::string> out;
  for (const Json& stage : Json::parse(take_string(text)))
    if (stage["prepares"].get<bool>()) out.push_back(stage["name"]);
  return out;
}

// Returns whether all images have the same size after the stage.
bool fixes_size(const Json& row) {
  return row["stage"] == "center_crop" ||
         (row["stage"] == "resize" && row.value("height", 0) > 0 && row.value("width", 0) > 0);
}

// Adds stages that take the middle of the image in place of a random crop.
void add_middle(const Json& row, Json& out) {
  const int64_t height = row.value("height", 0), width = row.value("width", 0);
  if (height == 0 || width == 0) return;  // the image's own size
  if (row["stage"] == "random_resized_crop" && height == width)
    out.push_back({{"stage", "resize"}, {"shorter_side", height}});
  else if (row["stage"] == "random_resized_crop")
    out.push_back({{"stage", "resize"}, {"height", height}, {"width", width}});
  out.push_back({{"stage", "center_crop"}, {"height", height}, {"width", width}});
}

Json of_training(const Json& stages) {
  const std::vector<std::string> kept = preparing_stages();
  Json out = Json::array();
  for (size_t i = 1; i < stages.size(); ++i) {
    const std::string name = stages[i]["stage"];
    if (name == "random_crop" || name == "random_resized_crop")
      add_middle(stages[i], out);
    else if (std::find(kept.begin(), kept.end(), name) != kept.end() &&
             stages[i].value("probability", 1.0) == 1)  // below 1, it is augmentation
      out.push_back(stages[i]);
  }
  return out;
}

Json of_evaluation(const Json& stages) {
  Json out = Json::array();
  for (size_t i = 1; i < stages.size(); ++i)
    if (stages[i]["stage"] != "label" && stages[i]["stage"] != "label_map")
      out.push_back(stages[i]);
  return out;
}

}  // namespace

Json preparation(const Json& job) {
  Json out = job.contains("evaluation")
                 ? of_evaluation(job.at("/evaluation/pipeline/stages"_json_pointer))
                 : of_training(job.at("/pipeline/stages"_json_pointer));
  const bool one_size = std::any_of(out.begin(), out.end(), fixes_size);
  for (Json& row : out) {
    if (row["stage"] == "batch" || row["stage"] == "padded_batch") row["drop_remainder"] = false;
    if (row["stage"] == "batch" && !one_size) row["size"] = 1;
  }
  return out;
}

}  // namespace cli
