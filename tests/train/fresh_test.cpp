// Runs that count fresh examples: their length, their evaluations and their schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/store.h"
#include "train/small_learner.h"
#include "train/together.h"

namespace etr::test {
namespace {

// Two of three samples are echoes, and the run's length is in fresh examples.
Json echoed_job(const TempDir& dir, const std::string& out, int64_t fresh, int64_t batch = 24) {
  Json job = job_of(dir, batch, out);
  const Json echo{{"stage", "echo"}, {"factor", 3}, {"buffer", 32}};
  Json& stages = job["pipeline"]["stages"];
  stages.insert(stages.begin() + 3, echo);
  job["train"] = {{"fresh", fresh}};
  return job;
}

Outcome run_alone(const Json& job, Start start = Start::new_run, const Watch& watch = {}) {
  return run(job, start, nullptr, watch);
}

TEST(FreshExamples, EndARun) {
  TempDir dir;
  for (const int64_t fresh : {100, 560}) {  // in the first epoch, and in the second
    Json job = echoed_job(dir, dir.path(cat("out", fresh)), fresh);
    const Outcome out = run_alone(job);
    ASSERT_FALSE(out.error) << out.error->what();
    const auto rows = steps_of(dir.path(cat("out", fresh)));
    EXPECT_EQ(out.end.epoch, fresh > 400 ? 1u : 0u);
    EXPECT_GE(rows.back()["fresh"], fresh);
    EXPECT_LT(rows[rows.size() - 2]["fresh"], fresh) << "ends at the first step that reaches it";
    EXPECT_GT(out.end.echoed, out.end.fresh);
    EXPECT_EQ(out.end.total_steps, out.end.step);
  }
}

TEST(FreshExamples, OfAllRanksCount) {
  TempDir dir;
  const auto ranks = together(2, [&](int) {
    Json job = echoed_job(dir, dir.path("out"), 100, 12);
    job["schedule"] = {{"schedule", "linear"}, {"learning_rate", 0.05}, {"clock", "fresh"}};
    return job;
  });
  const auto rows = steps_of(dir.path("out"));
  for (const Outcome& rank : ranks) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.end.step, rows.size());
    EXPECT_EQ(rank.end.fresh, rows.back()["fresh"]);
    EXPECT_EQ(rank.weights, ranks[0].weights);
  }
  EXPECT_GE(rows.back()["fresh"], 100);
  EXPECT_LT(rows[rows.size() - 2]["fresh"], 100);
  for (size_t i = 1; i < rows.size(); ++i)
    EXPECT_NEAR(rows[i]["learning_rate"].get<double>(),
                0.05 * (1 - rows[i - 1]["fresh"].get<double>() / 100), 1e-7);
}

TEST(FreshExamples, AreTheClockOfSchedulesThatAskForIt) {
  TempDir dir;
  Json job = echoed_job(dir, dir.path("out"), 200);
  job["schedule"] = {{"schedule", "linear"}, {"learning_rate", 0.05}, {"clock", "fresh"}};
  job["schedule"]["momentum_end"] = 0.5;
  ASSERT_FALSE(run_alone(job).error);
  const auto rows = steps_of(dir.path("out"));
  ASSERT_GT(rows.size(), 200u / 24 * 2) << "most examples are echoes";
  for (size_t i = 1; i < rows.size(); ++i)
    EXPECT_NEAR(rows[i]["learning_rate"].get<double>(),
                0.05 * (1 - rows[i - 1]["fresh"].get<double>() / 200), 1e-7)
        << i;
  job["train"] = {{"steps", 20}};
  const Outcome endless = run_alone(job);
  ASSERT_TRUE(endless.error);
  EXPECT_NE(std::string(endless.error->what()).find("(train.fresh of a job)"), std::string::npos)
      << endless.error->what();
}

// Without echo both clocks give the same schedule.
TEST(FreshExamples, MakeTheSameScheduleWhereNoneIsEchoed) {
  TempDir dir;
  Json job = job_of(dir, 24, dir.path("steps"));
  job["schedule"] = {{"schedule", "cosine"}, {"learning_rate", 0.05}, {"warmup_steps", 4}};
  ASSERT_FALSE(run_alone(job).error);
  job["output"]["dir"] = dir.path("fresh");
  job["schedule"]["warmup_steps"] = 4 * 24;
  job["schedule"]["clock"] = "fresh";
  job["train"] = {{"fresh", 15 * 24}};
  ASSERT_FALSE(run_alone(job).error);
  const auto steps = steps_of(dir.path("steps")), fresh = steps_of(dir.path("fresh"));
  ASSERT_EQ(steps.size(), fresh.size());
  for (size_t i = 0; i < steps.size(); ++i)
    EXPECT_NEAR(steps[i]["learning_rate"].get<double>(), fresh[i]["learning_rate"].get<double>(),
                1e-8);
}

TEST(FreshExamples, ResumeBitForBit) {
  TempDir dir;
  const auto until = [&](const std::string& name, int64_t fresh) {
    Json job = echoed_job(dir, dir.path(name), fresh);
    job["schedule"] = {{"schedule", "linear"},
                       {"learning_rate", 0.05},
                       {"clock", "fresh"},
                       {"warmup_steps", 40},
                       {"decay_steps", 200}};
    job["evaluation"]["every_fresh"] = 50;
    return job;
  };
  const auto evaluated = [](const Outcome& of) {
    std::vector<std::pair<uint64_t, double>> out;
    for (const Event& event : of.evaluations) out.emplace_back(event.step, event.eval_loss);
    return out;
  };
  const Outcome whole = run_alone(until("whole", 200));
  const Outcome first = run_alone(until("parts", 90));
  const Outcome rest = run_alone(until("parts", 200), Start::resume);
  ASSERT_FALSE(whole.error || first.error || rest.error);
  EXPECT_GE(first.end.fresh, 90u);
  EXPECT_LT(first.end.fresh, 114u);
  EXPECT_EQ(losses_of(dir.path("whole")), losses_of(dir.path("parts")));
  EXPECT_EQ(whole.weights, rest.weights);
  const auto late = evaluated(rest);
  ASSERT_GE(late.size(), 2u);
  const auto all = evaluated(whole);
  EXPECT_TRUE(std::equal(late.rbegin(), late.rend() - 1, all.rbegin()));
}

TEST(FreshExamples, SayWhenToEvaluate) {
  TempDir dir;
  Json job = echoed_job(dir, dir.path("out"), 210);
  job["evaluation"]["every_fresh"] = 50;
  job["evaluation"]["every_epochs"] = 0;
  const Outcome out = run_alone(job);
  ASSERT_FALSE(out.error) << out.error->what();
  ASSERT_EQ(out.evaluations.size(), 5u) << "at 50, 100, 150, 200, and at the end";
  const auto rows = steps_of(dir.path("out"));
  for (size_t i = 0; i < 4; ++i) {
    const uint64_t multiple = 50 * (i + 1), step = out.evaluations[i].step;
    EXPECT_GE(out.evaluations[i].fresh, multiple);
    EXPECT_LT(rows.at(step - 2)["fresh"], multiple) << "after the first step that reaches it";
  }
}

// stop() ends the evaluation at the first multiple of 50; the resumed run begins with it.
TEST(FreshExamples, OfAnEvaluationThatWasStoppedAreKept) {
  TempDir dir;
  Json job = echoed_job(dir, dir.path("out"), 100);
  job["evaluation"]["every_fresh"] = 50;
  Trainer trainer(shared_kernels(), Job::parse(job.dump(), "job"), Start::new_run);
  trainer.on_evaluation([&](int64_t, int64_t) {
    trainer.stop();
    return true;
  });
  Event end;
  do end = trainer.next_event();
  while (end.kind != EventKind::end);
  EXPECT_LT(end.fresh, 100u);
  const Outcome rest = run_alone(job, Start::resume);
  ASSERT_FALSE(rest.error) << rest.error->what();
  ASSERT_FALSE(rest.evaluations.empty());
  EXPECT_EQ(rest.evaluations[0].step, end.step);
}

// Checkpoints of earlier versions have no counts of examples.
TEST(FreshExamples, AreTakenFromTheRunWhereACheckpointDoesNotSay) {
  const auto make = [] {
    return make_learner(R"({"inputs": ["x"], "layers": [{"layer": "dense", "units": 1}],
                            "loss": {"loss": "mse", "target": "y"}})",
                        R"({"optimizer": "sgd"})");
  };
  pipeline::Item batch;
  batch.set("x", Tensor(DType::f32, {6, 3}));
  batch.set("y", Tensor(DType::f32, {6, 1}));
  train::Learner learner = make();
  learner.step(batch);
  checkpoint::Files files;
  learner.save(files);
  Json state = checkpoint::json_of(files, "learner.json", "test");
  EXPECT_EQ(state["fresh"], 6);
  train::Learner same = make();
  same.load(files, "test", {0, 77, 99});
  EXPECT_EQ(same.passed().fresh, 6u);
  state.erase("fresh");
  state.erase("examples");
  checkpoint::put_text(files, "learner.json", state.dump());
  same.load(files, "test", {0, 77, 99});
  EXPECT_EQ(same.passed().fresh, 77u);
  EXPECT_EQ(same.passed().examples, 99u);
}

// The rate is multiplied by a power of the share of fresh examples so far, also in a resumed run.
TEST(EchoPower, LowersTheRateOfEchoedExamples) {
  TempDir dir;
  const auto until = [&](const std::string& name, int64_t steps, double power) {
    Json job = echoed_job(dir, dir.path(name), 0);
    job["train"] = {{"steps", steps}};
    job["schedule"]["echo_power"] = power;
    return job;
  };
  ASSERT_FALSE(run_alone(until("whole", 12, 0.5)).error);
  ASSERT_FALSE(run_alone(until("parts", 5, 0.5)).error);
  ASSERT_FALSE(run_alone(until("parts", 12, 0.5), Start::resume).error);
  EXPECT_EQ(losses_of(dir.path("whole")), losses_of(dir.path("parts")));
  const auto rows = steps_of(dir.path("whole"));
  for (size_t i = 0; i < rows.size(); ++i) {
    const double share = rows[i]["fresh"].get<double>() / (24 * static_cast<double>(i + 1));
    EXPECT_LT(share, 1);
    EXPECT_NEAR(rows[i]["learning_rate"].get<double>(), 0.05 * std::sqrt(share), 1e-7) << i;
  }
}

TEST(TargetLoss, EndsTheRunThatFallsBelowIt) {
  TempDir dir;
  Json job = job_of(dir, 24);
  job["train"] = {{"steps", 2000}};
  job["evaluation"]["every_steps"] = 2;
  job["evaluation"]["target_loss"] = 0.7;
  const Outcome out = run_alone(job);
  ASSERT_FALSE(out.error) << out.error->what();
  EXPECT_TRUE(out.end.target_reached);
  EXPECT_LT(out.end.eval_loss, 0.7);
  ASSERT_GE(out.evaluations.size(), 2u);
  for (size_t i = 0; i + 1 < out.evaluations.size(); ++i)
    EXPECT_GE(out.evaluations[i].eval_loss, 0.7);
  job["train"] = {{"steps", 10}};
  job["evaluation"]["target_loss"] = out.evaluations[0].eval_loss;  // strictly below
  const Outcome equal = run_alone(job);
  ASSERT_FALSE(equal.error);
  EXPECT_EQ(equal.evaluations[0].eval_loss, out.evaluations[0].eval_loss);
  EXPECT_EQ(equal.evaluations[0].target_reached, false);
}

}  // namespace
}  // namespace etr::test
