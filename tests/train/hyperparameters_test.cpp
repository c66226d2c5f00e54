// Hyperparameters that change while a job runs.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>

#include "core/error.h"
#include "support/error_text.h"
#include "train/team.h"
#include "train/together.h"

namespace etr::test {
namespace {

using train::Team;

Json small_job(const TempDir& dir, int64_t batch, const std::string& out = "") {
  Json job = job_of(dir, batch, out);
  job["model"]["loss"] = {{"label_smoothing", 0.1}};
  job["optimizer"]["weight_decay"] = 0.01;
  return job;
}

// Calls `change` once on each rank, at the evaluation after the first epoch.
Watch changing(const std::function<void(int rank, Trainer& trainer)>& change) {
  return [change, done = std::make_shared<std::array<std::atomic<bool>, 4>>()](
             int rank, Trainer& trainer, const Event& event) {
    if (event.kind != EventKind::evaluation || (*done)[static_cast<size_t>(rank)].exchange(true))
      return;
    change(rank, trainer);
  };
}

void change_all(int, Trainer& trainer) {
  trainer.set_hyperparameter("momentum", 0.5);
  trainer.set_hyperparameter("weight_decay", 0.2);
  trainer.set_hyperparameter("label_smoothing", 0.3);
}

TEST(ChangedHyperparameters, AreThoseOfTheNextStep) {
  TempDir dir;
  const std::string plain = dir.path("plain"), changed = dir.path("changed");
  run(small_job(dir, 48, plain), Start::new_run, nullptr, {});
  uint64_t at = 0;
  const Outcome outcome = run(small_job(dir, 48, changed), Start::new_run, nullptr,
                              changing([&](int rank, Trainer& trainer) {
                                at = trainer.learner().steps();
                                change_all(rank, trainer);
                              }));
  ASSERT_FALSE(outcome.error) << outcome.error->what();
  const auto before = losses_of(plain), after = losses_of(changed);
  ASSERT_EQ(before.size(), after.size());
  ASSERT_GT(at, 0u);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i] == after[i], i < at) << i;
}

TEST(ChangedHyperparameters, ComeWithTheCheckpoint) {
  TempDir dir;
  const std::string whole = dir.path("whole"), parts = dir.path("parts");
  Json job = small_job(dir, 48, whole);
  run(job, Start::new_run, nullptr, changing(change_all));
  job["output"]["dir"] = parts;
  job["train"]["steps"] = 12;  // the change came after step 8, at the end of the first epoch
  job["train"]["planned_steps"] = 15;
  run(job, Start::new_run, nullptr, changing(change_all));
  job["train"]["steps"] = 15;
  const Outcome rest = run(job, Start::resume, nullptr, {});
  ASSERT_FALSE(rest.error) << rest.error->what();
  EXPECT_EQ(losses_of(parts), losses_of(whole)) << "bit for bit";
}

TEST(ChangedHyperparameters, AreThoseOfAllRanks) {
  TempDir dir;
  const Outcome one = run(small_job(dir, 48), Start::new_run, nullptr, changing(change_all));
  const auto ranks = together(
      2, [&](int) { return small_job(dir, 24); }, Start::new_run, changing(change_all));
  for (const Outcome& rank : ranks) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.weights, ranks[0].weights) << "bit for bit";
    ASSERT_EQ(rank.weights.size(), one.weights.size());
    for (size_t i = 0; i < one.weights.size(); ++i)
      ASSERT_NEAR(rank.weights[i], one.weights[i], 1e-4) << i;
    for (size_t i = 0; i < one.evaluations.size(); ++i)
      EXPECT_NEAR(rank.evaluations[i].eval_loss, one.evaluations[i].eval_loss, 1e-4);
  }
}

TEST(ChangedHyperparameters, AreRefusedWhereRanksDisagree) {
  TempDir dir;
  const auto ranks = together(
      2, [&](int) { return small_job(dir, 24); }, Start::new_run,
      changing([](int rank, Trainer& trainer) {
        trainer.set_hyperparameter("momentum", rank == 0 ? 0.5 : 0.50000001);
      }));
  for (const Outcome& rank : ranks) {
    ASSERT_TRUE(rank.error);
    EXPECT_EQ(rank.error->code(), Code::invalid_argument);
    EXPECT_NE(std::string(rank.error->what()).find("rank 1 sets momentum to 0.50000001"),
              std::string::npos)
        << rank.error->what();
  }
}

TEST(ChangedHyperparameters, FollowTheScheduleOnAllRanks) {
  TempDir dir;
  const auto job = [&](int64_t batch) {
    Json of = small_job(dir, batch);
    of["schedule"].update(
        {{"momentum_end", 0.3}, {"weight_decay_end", 0.3}, {"label_smoothing_end", 0}});
    return of;
  };
  const Outcome constant = run(small_job(dir, 48), Start::new_run, nullptr, {});
  const Outcome one = run(job(48), Start::new_run, nullptr, {});
  ASSERT_FALSE(one.error) << one.error->what();
  EXPECT_NE(one.weights, constant.weights);
  for (const Outcome& rank : together(2, [&](int) { return job(24); })) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    for (size_t i = 0; i < one.weights.size(); ++i)
      ASSERT_NEAR(rank.weights[i], one.weights[i], 1e-4) << i;
  }
}

// After an error about an unknown name the run goes on.
TEST(ChangedHyperparameters, ReachAllDevicesOfAProcess) {
  TempDir dir;
  const auto open = [](const std::string& selector) {
    gpu::DeviceOptions options = device_options();
    options.selector = selector;
    return std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(options));
  };
  Json job = small_job(dir, 24);
  const std::string name = device()->info().name;
  job["parallel"] = {{"devices", {name, name}}, {"timeout", 30}};
  Team team(open(name), Job::parse(job.dump(), "job"), Start::new_run, nullptr, open);
  team.next_event(1e-6);
  EXPECT_NE(error_text([&] { team.set_hyperparameter("momentun", 0.1); }).find("did you mean"),
            std::string::npos);
  team.set_hyperparameter("momentum", 0.1);
  while (team.next_event(0).kind != EventKind::end) {
  }
  std::vector<std::vector<float>> all;
  std::mutex mutex;
  team.on_learners([&](train::Learner& learner) {
    std::vector<float> values;
    for (const auto& field : learner.weights(""))
      for (const float value : field.tensor.view<float>()) values.push_back(value);
    const std::lock_guard lock(mutex);
    all.push_back(values);
  });
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0], all[1]);
}

}  // namespace
}  // namespace etr::test
