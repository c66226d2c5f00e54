// A small job on synthetic images, and readers of its metrics.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/parse_json.h"
#include "core/platform.h"
#include "support/data.h"

namespace etr::test {

// Has no batch normalisation, whose moments would differ between ranks.
inline Json job_of(const TempDir& dir, int64_t batch, const std::string& out = "",
                   int samples = 400) {
  const auto stages = [&](const std::string& pattern, bool drop) {
    return Json::array({{{"stage", "webdataset"}, {"pattern", pattern}},
                        {{"stage", "label"}, {"classes", 4}},
                        {{"stage", "decode"}},
                        {{"stage", "random_crop"}, {"pad", 1}},
                        {{"stage", "batch"}, {"size", batch}, {"drop_remainder", drop}},
                        {{"stage", "normalize"}}});
  };
  return {{"seed", 4},
          {"pipeline",
           {{"stages", stages(make_band_shard(dir, cat("train", samples), samples, 1), true)}}},
          {"model",
           {{"layers",
             {{{"layer", "conv2d"}, {"filters", 8}, {"activation", "relu"}},
              {{"layer", "max_pool"}},
              {{"layer", "flatten"}},
              {{"layer", "dense"}, {"units", 4}}}}}},
          {"optimizer", {{"optimizer", "sgd"}, {"momentum", 0.9}}},
          {"schedule", {{"learning_rate", 0.05}}},
          {"train", {{"steps", 15}}},
          {"evaluation",
           {{"every_epochs", 1},
            {"pipeline", {{"stages", stages(make_band_shard(dir, "test", 100, 2), false)}}}}},
          {"output", {{"dir", out}, {"tensorboard", false}, {"checkpoint_every_steps", 4}}}};
}

inline std::vector<Json> steps_of(const std::string& out) {
  std::vector<Json> rows;
  std::stringstream lines(platform::read_file(out + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (Json row = parse_json(line, "metrics"); row["kind"] == "step") rows.push_back(row);
  return rows;
}

inline std::vector<std::string> losses_of(const std::string& out) {
  std::vector<std::string> losses;
  for (const Json& row : steps_of(out))
    losses.push_back(cat(row["step"].dump(), " ", row["loss"].dump()));
  return losses;
}

}  // namespace etr::test
