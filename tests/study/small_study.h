// A small study on generated images, and helpers to run it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "study/runner.h"
#include "support/device.h"
#include "support/error_text.h"
#include "train/band_job.h"

namespace etr::test {

using study::Record;
using study::Runner;
using study::RunOptions;
using study::Status;
using study::Study;

inline std::shared_ptr<gpu::Kernels> study_kernels() {
  return {&kernels(), [](gpu::Kernels*) {}};  // the test program owns them
}

// Returns a study with one search of four trials for each of two batch sizes. A trial takes some
// tens of milliseconds.
inline Json study_json(const TempDir& dir, const std::string& job_name = "bands") {
  Json job = job_of(dir, 32);
  job["name"] = job_name;
  job["model"] = {{"layers",
                   {{{"layer", "flatten"}},
                    {{"layer", "dense"}, {"units", 16}, {"activation", "relu"}},
                    {{"layer", "dense"}, {"units", 4}}}},
                  {"loss", {{"loss", "softmax_cross_entropy"}, {"label_smoothing", 0.05}}}};
  const Json repeat{{"stage", "repeat"}};
  Json& stages = job["pipeline"]["stages"];
  stages.insert(stages.begin() + 1, repeat);
  return {{"name", "Bands"},
          {"seed", 5},
          {"job", job},
          {"set", {"pipeline.stages.5.size=${batch}"}},
          {"goal", {{"metric", "loss"}, {"target", 0.7}}},
          {"budget", {{"steps", 40}}},
          {"evaluate", {{"every_steps", 5}}},
          {"search",
           {{"trials", 4},
            {"space",
             {{"schedule.learning_rate", {{"from", 1e-3}, {"to", 0.3}, {"scale", "log"}}},
              {"optimizer.momentum", {{"from", 0}, {"to", 0.95}, {"scale", "log_complement"}}}}}}},
          {"for", {{"batch", {16, 32}}}}};
}

inline Study parsed(const Json& json, const std::vector<std::string>& overrides = {}) {
  return Study::parse(json, "the study", "", overrides);
}

// A study file, and what is wrong with it.
class StudyFileTest : public testing::Test {
 protected:
  std::string problem(const Json& json, const std::vector<std::string>& overrides = {}) const {
    return error_text([&] { parsed(json, overrides); });
  }
  void expect_problem(const Json& json, const std::string& part) const {
    const std::string text = problem(json);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }

  TempDir dir_;
  Json json_ = study_json(dir_);
};

// Returns options for a runner that runs `parallel` trials at once.
inline RunOptions run_options(const std::string& folder, uint64_t parallel = 1,
                              bool overwrite = false) {
  return {folder, overwrite, parallel, open_selected};
}

// Runs the study to its end. Returns its events.
inline std::vector<study::Event> run_study(const Json& json, const std::string& folder,
                                           uint64_t parallel = 1, bool overwrite = false) {
  Runner runner(study_kernels(), parsed(json), run_options(folder, parallel, overwrite));
  std::vector<study::Event> events;
  do events.push_back(runner.next_event(1));
  while (events.back().kind != study::EventKind::end);
  return events;
}

inline std::vector<Record> records_in(const std::string& folder) {
  return study::read_records(folder + "/trials.jsonl");
}

}  // namespace etr::test
