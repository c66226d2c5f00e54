// Jobs that are changed as advised.
#include "study/advise_job.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"
#include "study/small_study.h"

namespace etr::test {
namespace {

// Returns advice to add an echo node after the stage `after`, with a cap of 8.
Json echo_behind(size_t after) {
  return {{"helps", true},
          {"keep_echo", false},
          {"echo",
           {{"after", after},
            {"stage", "decode"},
            {"factor", 8.0},
            {"buffer", 64},
            {"mode", "on_demand"},
            {"device", false}}},
          {"other_advice", Json::array()}};
}

Json stages_of(const Json& job) { return job["pipeline"]["stages"]; }

TEST(AdviseJob, AddsTheEcho) {
  const TempDir dir;
  const train::Job job = train::Job::parse(job_of(dir, 32).dump(), "the job");
  std::vector<std::string> changes;
  const Json out = study::advised_job(job, echo_behind(0), changes);
  EXPECT_EQ(stages_of(out).size(), stages_of(job.json()).size() + 1);
  EXPECT_EQ(stages_of(out)[1]["stage"], "echo");
  EXPECT_EQ(stages_of(out)[1]["mode"], "on_demand");
  ASSERT_FALSE(changes.empty());
  EXPECT_EQ(changes[0].rfind("added ", 0), 0U) << changes[0];
}

TEST(AdviseJob, AHealthyJobKeepsAnEchoThatTheAdviceKeeps) {
  const TempDir dir;
  Json written = job_of(dir, 32);
  Json& stages = written["pipeline"]["stages"];
  const Json echo{{"stage", "echo"}, {"factor", 4}, {"buffer", 64}, {"mode", "on_demand"}};
  stages.insert(stages.begin() + 3, echo);
  const train::Job job = train::Job::parse(written.dump(), "the job");
  std::vector<std::string> changes;
  const Json advice{
      {"helps", false}, {"keep_echo", true}, {"echo", nullptr}, {"other_advice", Json::array()}};
  EXPECT_EQ(stages_of(study::advised_job(job, advice, changes)), stages);
  EXPECT_TRUE(changes.empty()) << changes[0];
}

TEST(AdviseJob, AJobTooSlowToCompareSaysHowLongItHad) {
  const TempDir dir;
  Json written = job_of(dir, 32);
  Json& stages = written["pipeline"]["stages"];
  const Json delay{{"stage", "delay"}, {"milliseconds", 1000}};
  stages.insert(stages.begin() + 1, delay);
  const train::Job job = train::Job::parse(written.dump(), "the job");
  study::AdviseOptions options;
  options.seconds = 0.03;
  options.start_up = 0.5;
  try {
    study::compare(study_kernels(), job, nullptr, options);
    FAIL() << "one step takes 32 seconds";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("too few steps to compare in 1 s"), std::string::npos)
        << error.what();
  }
}

TEST(AdviseJob, WritesBesideTheRunAndNotIntoIt) {
  const TempDir dir;
  Json written = job_of(dir, 32);
  written["output"]["dir"] = "runs/mine/";
  const train::Job job = train::Job::parse(written.dump(), "the job");
  std::vector<std::string> changes;
  EXPECT_EQ(study::advised_job(job, echo_behind(0), changes)["output"]["dir"], "runs/mine-advised");
}

TEST(AdviseJob, AJobWithoutAnOutputSectionKeepsItsPipeline) {
  const TempDir dir;
  Json written = job_of(dir, 32);
  written.erase("output");
  const train::Job job = train::Job::parse(written.dump(), "the job");
  std::vector<std::string> changes;
  const Json out = study::advised_job(job, echo_behind(0), changes);
  EXPECT_EQ(stages_of(out).size(), stages_of(job.json()).size() + 1);
  EXPECT_NO_THROW(train::Job::parse(out.dump(), "the job as advised"));
}

}  // namespace
}  // namespace etr::test
