// Jobs whose model is divided among several ranks.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "train/together.h"

namespace etr::test {

inline Json staged(Json job, int stages, int micro_batches, const char* schedule = "1f1b") {
  job["parallel"] = {
      {"mesh", {{"pipeline", stages}}}, {"micro_batches", micro_batches}, {"schedule", schedule}};
  return job;
}

inline Json layers(Json job, Json list) {
  job["model"]["layers"] = std::move(list);
  return job;
}

inline const Json& dense_layers() {
  static const Json all{{{"layer", "flatten"}},
                        {{"layer", "dense"}, {"units", 24}, {"activation", "relu"}},
                        {{"layer", "dropout"}, {"rate", 0.2}},
                        {{"layer", "dense"}, {"units", 16}, {"activation", "relu"}},
                        {{"layer", "dense"}, {"units", 12}, {"activation", "relu"}},
                        {{"layer", "dense"}, {"units", 4}}};
  return all;
}

// Each row of the image is a position of the sequence.
inline const Json& attention_layers() {
  const auto block = [](const char* name) {
    return Json{{"layer", "residual"},
                {"name", name},
                {"layers",
                 {{{"layer", "layer_norm"}},
                  {{"layer", "attention"}, {"heads", 2}, {"causal", true}},
                  {{"layer", "dropout"}, {"rate", 0.1}}}}};
  };
  const auto wide = [](const char* name) {
    return Json{{"layer", "residual"},
                {"name", name},
                {"layers",
                 {{{"layer", "layer_norm"}},
                  {{"layer", "dense"}, {"units", 32}, {"activation", "gelu"}},
                  {{"layer", "dense"}, {"units", 16}}}}};
  };
  static const Json all{{{"layer", "reshape"}, {"shape", {12, 12}}},
                        {{"layer", "dense"}, {"units", 16}},
                        {{"layer", "position_embedding"}},
                        block("attend1"),
                        wide("wide1"),
                        block("attend2"),
                        wide("wide2"),
                        {{"layer", "layer_norm"}},
                        {{"layer", "flatten"}},
                        {{"layer", "dense"}, {"units", 4}}};
  return all;
}

inline void expect_same_losses(const std::string& out, const std::string& one, double tolerance) {
  const auto rows = steps_of(out), expected = steps_of(one);
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_NEAR(rows[i]["loss"].get<double>(), expected[i]["loss"].get<double>(), tolerance) << i;
    EXPECT_NEAR(rows[i]["accuracy"].get<double>(), expected[i]["accuracy"].get<double>(), 1e-6);
    EXPECT_EQ(rows[i]["examples"], expected[i]["examples"]);
  }
}

// Returns a job in float16 whose gradients overflow at first, in the layers in front of "last" and
// nowhere else.
inline Json overflowing(Json job) {
  job["model"]["layers"] = {
      {{"layer", "flatten"}},
      {{"layer", "dense"}, {"units", 24}, {"activation", "relu"}},
      {{"layer", "dense"}, {"units", 16}, {"activation", "relu"}},
      {{"layer", "glsl"},
       {"source",
        "float forward(uint i) { return x0[i]; } float gradient0(uint i) { return 512 * dy[i]; "
        "}"}},
      {{"layer", "dense"}, {"name", "last"}, {"units", 12}, {"activation", "relu"}},
      {{"layer", "dense"}, {"units", 4}}};
  job["model"]["precision"] = "fp16";
  job["optimizer"] = {{"optimizer", "adam"}};  // which divides by the size of gradients
  job["schedule"]["learning_rate"] = 0.002;
  job["train"]["steps"] = 16;
  return job;
}

// Expects that both runs have skipped the same steps: some at the beginning, and not most.
inline void expect_same_skips(const std::string& out, const std::string& one) {
  const auto rows = steps_of(out), expected = steps_of(one);
  ASSERT_EQ(rows.size(), expected.size());
  size_t skipped = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].contains("skipped"), expected[i].contains("skipped")) << i;
    skipped += expected[i].contains("skipped");
  }
  EXPECT_TRUE(expected[0].contains("skipped") && expected[1].contains("skipped"));
  EXPECT_LT(skipped, rows.size() / 2);
}

inline void expect_no_errors(const std::vector<Outcome>& ranks) {
  for (const Outcome& rank : ranks) ASSERT_FALSE(rank.error) << rank.error->what();
}

}  // namespace etr::test
