// What a run has done, and when it saves, evaluates and ends.
#include "train/progress.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/json.h"
#include "core/parse_json.h"
#include "train/milestones.h"

namespace etr::test {
namespace {

using train::Event;
using train::Progress;
using train::StepMetrics;

StepMetrics step_of(float loss, int64_t samples) {
  StepMetrics metrics;
  metrics.loss = loss;
  metrics.learning_rate = 0.5F;
  metrics.busy_seconds = 2;
  metrics.counts = {samples, samples - 1, 1};
  return metrics;
}

TEST(Progress, MeansAreOfTheStepsSinceTheLastEvent) {
  Progress progress;
  progress.count(step_of(1, 4), true);
  progress.count(step_of(3, 4), false);
  Event event;
  progress.fill(event);
  EXPECT_EQ(event.loss, 2);
  EXPECT_EQ(event.examples, 8u);
  EXPECT_EQ(event.fresh, 6u);
  EXPECT_EQ(event.echoed, 2u);
  EXPECT_EQ(progress.busy_seconds(), 2) << "only of the step that was timed";
  progress.fill(event);
  EXPECT_EQ(event.loss, 2) << "no step since: the same means";
  progress.count(step_of(7, 4), true);
  progress.fill(event);
  EXPECT_EQ(event.loss, 7);
}

TEST(Progress, SpeedIsThatOfTheStepsWhoseTimeCounts) {
  Progress progress;
  progress.count(step_of(1, 1'000'000), false);
  Event event;
  progress.fill(event);
  EXPECT_EQ(event.examples_per_second, 0);
  progress.resume_clock();
  progress.count(step_of(1, 4), true);
  progress.fill(event);
  EXPECT_NEAR(event.examples_per_second * std::max(event.seconds, 1e-9), 4, 1e-6);
  Progress together;  // both before one event
  together.count(step_of(1, 1'000'000), false);
  together.resume_clock();
  together.count(step_of(1, 4), true);
  together.fill(event);
  EXPECT_NEAR(event.examples_per_second * std::max(event.seconds, 1e-9), 4, 1e-6);
}

TEST(Progress, GoesOnWhereItWasSaved) {
  Progress before;
  before.resume_clock();
  before.count(step_of(1, 4), true);
  before.pause_clock();
  before.end_epoch();
  before.keep({1, {10, 0.25, 0.75}});
  Progress after;
  const Json saved = parse_json(before.json().dump(), "state");
  after.load(JsonMembers(saved, "the test", Code::corrupt_data));
  EXPECT_EQ(after.json(), before.json());
  EXPECT_TRUE(after.epoch_ended());
  EXPECT_EQ(after.evaluation().metrics.accuracy, 0.75);
}

TEST(Progress, SpeedAfterAResumeIsThatOfTheStepsSince) {
  const Json hour{{"epoch", 0},  {"examples", 1},   {"fresh", 1},
                  {"echoed", 0}, {"seconds", 3600}, {"busy_seconds", 0}};
  Progress progress;
  progress.load(JsonMembers(hour, "the test", Code::corrupt_data));
  progress.resume_clock();
  progress.count(step_of(1, 1'000'000), true);
  Event event;
  progress.fill(event);
  EXPECT_GT(event.examples_per_second, 1000) << "the hour before the resume does not count";
}

TEST(Milestones, FallOnEpochsAndSteps) {
  const auto job = train::Job::parse(
      R"({"pipeline": {"stages": [{"stage": "idx", "images": "x"}, {"stage": "batch", "size": 4}]},
          "model": {"inputs": ["image"], "layers": [{"layer": "dense", "units": 2}],
                    "loss": {"loss": "mse", "target": "y"}},
          "optimizer": {"optimizer": "sgd"}, "schedule": {"rate": 0.1},
          "train": {"epochs": 3, "steps": 100},
          "output": {"checkpoint_every_epochs": 2, "checkpoint_every_steps": 10}})",
      "job");
  const auto saves = [&](uint64_t step, uint64_t epoch, bool ended) {
    return train::checkpoint_falls_on({step, epoch, ended}, job.output());
  };
  EXPECT_TRUE(saves(10, 0, false));
  EXPECT_FALSE(saves(11, 2, false)) << "the epoch ended earlier";
  EXPECT_TRUE(saves(11, 2, true));
  EXPECT_FALSE(saves(11, 3, true));
  EXPECT_TRUE(train::run_ends_at({100, 1, false}, job.train()));
  EXPECT_TRUE(train::run_ends_at({20, 3, true}, job.train()));
  EXPECT_FALSE(train::run_ends_at({99, 2, true}, job.train()));
  EXPECT_EQ(train::total_steps(job.train(), std::nullopt), 100u);
  EXPECT_EQ(train::total_steps(job.train(), 7), 21u);
  EXPECT_EQ(train::total_steps(job.train(), 70), 100u);
}

TEST(Milestones, FallOnFreshExamples) {
  const auto job = train::Job::parse(
      R"({"pipeline": {"stages": [{"stage": "idx", "images": "x"}, {"stage": "batch", "size": 4}]},
          "model": {"inputs": ["image"], "layers": [{"layer": "dense", "units": 2}],
                    "loss": {"loss": "mse", "target": "y"}},
          "optimizer": {"optimizer": "sgd"}, "schedule": {"rate": 0.1},
          "train": {"fresh": 1000, "steps": 300},
          "evaluation": {"every_fresh": 100, "pipeline": {"stages": [{"stage": "idx", "images": "x"},
                                                                    {"stage": "batch", "size": 4}]}}})",
      "job");
  const auto evaluates = [&](uint64_t fresh, uint64_t latest) {
    return train::evaluation_falls_on({7, 0, false, fresh, latest}, *job.evaluation());
  };
  EXPECT_TRUE(evaluates(100, 4));
  EXPECT_TRUE(evaluates(103, 4));
  EXPECT_TRUE(evaluates(430, 300)) << "several multiples at once";
  EXPECT_FALSE(evaluates(104, 4));
  EXPECT_FALSE(evaluates(99, 4));
  EXPECT_FALSE(evaluates(100, 0)) << "a batch of echoes after the multiple";
  EXPECT_FALSE(evaluates(0, 0));
  EXPECT_TRUE(train::run_ends_at({9, 0, false, 1000}, job.train()));
  EXPECT_FALSE(train::run_ends_at({9, 0, false, 999}, job.train()));
  const auto end = [&](uint64_t step, uint64_t fresh) {
    const uint64_t to_fresh = train::steps_to_fresh(job.train(), {step, 0, false, fresh});
    return train::total_steps(job.train(), std::nullopt, {}, to_fresh);
  };
  EXPECT_EQ(end(0, 0), 300u) << "nothing is known yet";
  EXPECT_EQ(end(1, 100), 10u);
  EXPECT_EQ(end(3, 100), 30u) << "two of three are echoes";
  EXPECT_EQ(end(70, 100), 300u) << "the limit of steps comes first";
  EXPECT_EQ(end(250, 1003), 250u);
}

TEST(Milestones, TheEndFollowsFromTheEpochsThatAreLeft) {
  const auto job = train::Job::parse(
      R"({"pipeline": {"stages": [{"stage": "idx", "images": "x"}, {"stage": "batch", "size": 4}]},
          "model": {"inputs": ["image"], "layers": [{"layer": "dense", "units": 2}],
                    "loss": {"loss": "mse", "target": "y"}},
          "optimizer": {"optimizer": "sgd"}, "schedule": {"rate": 0.1}, "train": {"epochs": 5}})",
      "job");
  const auto end = [&](const train::Milestone& resumed, uint64_t epoch_steps) {
    return train::total_steps(job.train(), epoch_steps, train::epoch_start(resumed, epoch_steps));
  };
  EXPECT_EQ(end({0, 0}, 62), 310u);
  EXPECT_EQ(end({140, 2}, 62), 310u) << "in the middle of the third epoch";
  EXPECT_EQ(end({186, 3}, 62), 310u);
  EXPECT_EQ(end({186, 3}, 41), 268u) << "three epochs of 62 steps, then two of 41";
  EXPECT_EQ(end({186, 3}, 125), 436u);
  EXPECT_EQ(end({268, 7}, 41), 268u) << "the run was already past its end";
}

}  // namespace
}  // namespace etr::test
