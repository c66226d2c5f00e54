// A small job on synthetic images with echo and batch normalisation, and helpers that run it.
#pragma once

#include <string>

#include "core/error.h"
#include "core/json.h"
#include "support/data.h"
#include "train/band_job.h"
#include "train/trainer.h"

namespace etr::test {

inline Json job_json(const TempDir& dir, const std::string& out = "") {
  const Json normalize{{"stage", "normalize"}};
  const auto stages = [&](const std::string& pattern, const Json& middle, bool drop) {
    Json list = Json::array({{{"stage", "webdataset"}, {"pattern", pattern}},
                             {{"stage", "label"}, {"classes", 4}},
                             {{"stage", "decode"}}});
    for (const Json& stage : middle) list.push_back(stage);
    list.push_back({{"stage", "batch"}, {"size", 32}, {"drop_remainder", drop}});
    list.push_back(normalize);
    return list;
  };
  const Json middle = Json::array({{{"stage", "echo"}, {"factor", 1.5}, {"buffer", 64}},
                                   {{"stage", "random_crop"}, {"pad", 1}}});
  return {{"seed", 4},
          {"pipeline", {{"stages", stages(make_band_shard(dir, "train", 400, 1), middle, true)}}},
          {"model",
           {{"layers",
             {{{"layer", "conv2d"}, {"filters", 8}, {"bias", false}},
              {{"layer", "batch_norm"}, {"activation", "relu"}},
              {{"layer", "max_pool"}},
              {{"layer", "dropout"}, {"rate", 0.1}},
              {{"layer", "flatten"}},
              {{"layer", "dense"}, {"units", 4}}}}}},
          {"optimizer", {{"optimizer", "sgd"}, {"momentum", 0.9}, {"nesterov", true}}},
          {"schedule", {{"schedule", "cosine"}, {"learning_rate", 0.05}}},
          {"train", {{"steps", 30}}},
          {"evaluation",
           {{"every_epochs", 1},
            {"pipeline",
             {{"stages", stages(make_band_shard(dir, "test", 100, 2), Json::array(), false)}}}}},
          {"output", {{"dir", out}, {"tensorboard", !out.empty()}}}};
}

inline train::Event run_to_end(train::Trainer& trainer) {
  train::Event event;
  do event = trainer.next_event();
  while (event.kind != train::EventKind::end);
  return event;
}

template <typename Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::ok, "no error");
}

}  // namespace etr::test
