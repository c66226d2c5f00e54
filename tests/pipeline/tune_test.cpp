#include "pipeline/tune.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/platform.h"
#include "support/data.h"
#include "support/http_server.h"

namespace etr::test {
namespace {

using pipeline::Pipeline;

Json spec_of(const TempDir& dir) {
  return {{"stages",
           {{{"stage", "webdataset"}, {"pattern", make_shards(dir, 1, 100, 8)}},
            {{"stage", "decode"}},
            {{"stage", "keep"}, {"fields", "image"}},
            {{"stage", "batch"}, {"size", 10}}}}};
}

TEST(Tune, TriesWithinTheMachineAndSaysWhatItFound) {
  TempDir dir;
  int trials = 0;
  const Json found =
      pipeline::tune(spec_of(dir), {}, {0.2, 0, [&](const Json&) { return ++trials > 0; }});
  EXPECT_EQ(trials, static_cast<int>(found["trials"].size()));
  const auto cores = static_cast<int>(platform::usable_threads());
  for (const Json& trial : found["trials"]) {
    EXPECT_LE(trial["threads"].get<int>(), cores);
    EXPECT_GT(trial["samples_per_s"].get<double>(), 0);
  }
  EXPECT_FALSE(found["options"].contains("remote_connections")) << "no files are remote";
}

// With a set of two batches, a trial has thousands of epochs. A set of less than a batch has no
// batches.
TEST(Tune, TakesTheSmallestSets) {
  TempDir dir;
  const auto set_of = [&](int samples) {
    return Json{{"stages",
                 {{{"stage", "webdataset"}, {"pattern", make_shards(dir, 1, samples)}},
                  {{"stage", "label"}, {"field", "txt"}},
                  {{"stage", "batch"}, {"size", 10}}}}};
  };
  EXPECT_GT(pipeline::tune(set_of(20), {}, {0.2, 0, {}})["samples_per_s"], 0);
  try {
    pipeline::tune(set_of(9), {}, {0.2, 0, {}});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("fewer samples than a batch holds"), std::string::npos)
        << error.what();
  }
}

TEST(Tune, TakesTheSmallestThatIsAsGood) {
  const auto first = [](std::vector<double> rates) { return pipeline::first_as_good(rates); };
  EXPECT_EQ(first({100}), 0u);
  EXPECT_EQ(first({98, 100, 99}), 0u) << "2 % is within the noise";
  EXPECT_EQ(first({50, 96, 100}), 2u);
  EXPECT_EQ(first({50, 98, 100, 99}), 1u);
}

// The choice must agree with the recorded trials, whatever the load of the machine.
TEST(Tune, ChoosesByItsTrials) {
  TempDir dir;
  const Json found = pipeline::tune(spec_of(dir), {}, {0.02, 1, {}});
  std::vector<double> rates;
  std::vector<int> threads;
  for (const Json& trial : found["trials"])
    if (!trial.contains("prefetch")) {
      rates.push_back(trial["samples_per_s"]);
      threads.push_back(trial["threads"]);
    }
  EXPECT_EQ(found["options"]["threads"], threads.at(pipeline::first_as_good(rates)));
}

TEST(Tune, WhatItFoundServesAPipeline) {
  TempDir dir;
  const std::string path = dir.path("tuned.json");
  std::ofstream(path) << R"({"options": {"threads": 3, "prefetch": 7}})";
  Json spec = spec_of(dir);
  spec["tuned"] = path;
  spec["prefetch"] = 2;
  const Json merged = pipeline::with_tuned(spec);
  EXPECT_EQ(merged["threads"], 3);
  EXPECT_EQ(merged["prefetch"], 2) << "the spec's own options take precedence";
  Pipeline p(spec);
  pipeline::Item item;
  p.next(item);
  EXPECT_EQ(p.stats()["threads"], 3);
  std::ofstream(path) << "{}";
  EXPECT_THROW(Pipeline{spec}, Error);
}

// Decisions of an earlier run, which a pipeline with that log would declare void.
const char* const kLog = "{\"epoch\":0,\"after\":3,\"echoes\":2}\n";

// A pipeline with files of all kinds, and with a bad record.
Json spec_with_files(const TempDir& dir) {
  std::ofstream(dir.path("echo.jsonl")) << kLog;
  std::ofstream(dir.path("bad.tar")) << "no tar";
  Json spec = spec_of(dir);
  const Json echo{
      {"stage", "echo"}, {"mode", "on_demand"}, {"factor", 2}, {"log", dir.path("echo.jsonl")}};
  spec["stages"].insert(spec["stages"].begin() + 2, echo);
  spec["stages"][0]["pattern"] = dir.path("*.tar*");
  spec["on_error"] = "quarantine";
  spec["quarantine_dir"] = dir.path("bad");
  spec["bad_records_file"] = dir.path("bad.jsonl");
  return spec;
}

void expect_files_left_alone(const TempDir& dir) {
  EXPECT_EQ(platform::read_file(dir.path("echo.jsonl")), kLog);
  for (const char* file : {"bad", "bad.jsonl"})
    EXPECT_FALSE(std::filesystem::exists(dir.path(file))) << file;
}

TEST(WriteFiles, IsFalseForPipelinesThatOnlyLook) {
  TempDir dir;
  Json spec = spec_with_files(dir);
  spec["epochs"] = 1;
  spec["write_files"] = false;
  {
    Pipeline p(spec);
    digest_of_epoch(p);
    EXPECT_EQ(p.bad_record_list().size(), 1u);
  }
  expect_files_left_alone(dir);
  spec["write_files"] = "no";
  EXPECT_THROW(Pipeline{spec}, Error);
}

TEST(Tune, LeavesTheFilesOfARunAlone) {
  TempDir dir;
  EXPECT_GT(pipeline::tune(spec_with_files(dir), {}, {0.02, 0, {}})["samples_per_s"], 0);
  expect_files_left_alone(dir);
  for (const char* wrong : {R"({"stages": 3, "on_error": 4})", R"({"stages": [3, {"stage": 4}]})"})
    EXPECT_THROW(pipeline::tune(Json::parse(wrong), {}, {0.02, 0, {}}), Error) << wrong;
}

// The parts that 16 requests need have no room in the budget.
TEST(Tune, GoesOnAfterAValueThatIsRefused) {
  std::string lines;
  for (int i = 1'000'000; lines.size() < 4'000'000; ++i) lines += std::to_string(i) + "\n";
  const HttpServer server({{"/a.txt", lines}});
  const Json spec{{"budget_bytes", 2'000'000},
                  {"stages",
                   {{{"stage", "text_lines"}, {"pattern", server.address() + "/a.txt"}},
                    {{"stage", "batch"}, {"size", 10}}}}};
  const Json found = pipeline::tune(spec, {}, {0.01, 0, {}});
  std::string said;
  for (const Json& trial : found["trials"]) {
    EXPECT_NE(trial.contains("error"), trial.contains("samples_per_s")) << trial;
    if (trial.value("remote_connections", 0) != 16) continue;
    EXPECT_NE(trial.value("error", "").find("budget_bytes is 2.0 MB, which is too little"),
              std::string::npos)
        << trial;
    said = trial.value("error", "");
  }
  EXPECT_NE(said, "");
  EXPECT_LT(found["options"]["remote_connections"], 16);
  EXPECT_TRUE(found["options"].contains("prefetch")) << "what comes after it is tried";
}

// No value of an option brings it.
TEST(Tune, EndsWithTheFirstTrialWhoseDataIsMissing) {
  TempDir dir;
  Json spec = spec_of(dir);
  spec["stages"][0]["pattern"] = dir.path("missing.tar");
  int trials = 0;
  try {
    pipeline::tune(spec, {}, {0.02, 0, [&](const Json&) { return ++trials > 0; }});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::not_found);
    EXPECT_NE(std::string(error.what()).find("missing.tar"), std::string::npos) << error.what();
  }
  EXPECT_EQ(trials, 0);
}

// A trial may end before it has a rate.
TEST(Tune, TrialsWithoutARateAreNoErrors) {
  TempDir dir;
  const Json found = pipeline::tune(spec_of(dir), {}, {1e-9, 0, {}});
  EXPECT_TRUE(found["options"].contains("prefetch"));
}

TEST(Tune, StopsWhenAsked) {
  TempDir dir;
  EXPECT_THROW(pipeline::tune(spec_of(dir), {}, {0.01, 0, [](const Json&) { return false; }}),
               Error);
}

}  // namespace
}  // namespace etr::test
