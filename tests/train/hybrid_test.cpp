// Jobs whose model is cut into stages, each of whose tensors several ranks share: together they
// train as one device does.
#include <gtest/gtest.h>

#include <mutex>

#include "core/log.h"
#include "train/staged_job.h"

namespace etr::test {
namespace {

using parallel::MeshShape;

Json meshed(Json job, const MeshShape& mesh, Json stages = Json::array()) {
  if (mesh.pipeline > 1) job = staged(std::move(job), mesh.pipeline, 3);
  job["parallel"]["mesh"] = {
      {"data", mesh.data}, {"pipeline", mesh.pipeline}, {"tensor", mesh.tensor}};
  job["parallel"]["stages"] = std::move(stages);
  return job;
}

std::vector<Outcome> on_mesh(const Json& job, const MeshShape& mesh, Json stages = Json::array(),
                             Start start = Start::new_run) {
  const Json own = meshed(job, mesh, std::move(stages));
  return together(
      mesh.size(), [&](int) { return own; }, start);
}

struct HybridModel {
  const char* name;
  const Json& layers;
  Json optimizer;
  Json stages;  // the layers at which they begin; empty: chosen automatically
};

void PrintTo(const HybridModel& model, std::ostream* out) { *out << model.name; }

class OnAMesh : public testing::TestWithParam<HybridModel> {
 protected:
  void compare(int steps, double tolerance) {
    const HybridModel& model = GetParam();
    const auto job = [&](const char* out) {
      Json made = layers(job_of(dir_, 24, dir_.path(out)), model.layers);
      made["optimizer"] = model.optimizer;
      made["schedule"]["learning_rate"] = 0.02;
      made["train"]["steps"] = steps;
      return made;
    };
    const Outcome one = run(job("one"), Start::new_run, nullptr, {});
    ASSERT_FALSE(one.error) << one.error->what();
    const auto ranks = on_mesh(job("mesh"), {1, 2, 2}, model.stages);
    expect_no_errors(ranks);
    expect_same_losses(dir_.path("mesh"), dir_.path("one"), tolerance);
    for (const size_t stage : {0, 1})
      EXPECT_EQ(ranks[2 * stage].weights, ranks[2 * stage + 1].weights) << "whole tensors";
    for (const Outcome& rank : ranks) {
      ASSERT_EQ(rank.evaluations.size(), one.evaluations.size());
      for (size_t i = 0; i < one.evaluations.size(); ++i)
        EXPECT_NEAR(rank.evaluations[i].eval_loss, one.evaluations[i].eval_loss, tolerance);
    }
    // One device loads their checkpoint.
    const Outcome loaded = run(job("mesh"), Start::resume, nullptr, {});
    ASSERT_FALSE(loaded.error) << loaded.error->what();
    ASSERT_EQ(loaded.weights.size(), one.weights.size());
    for (size_t i = 0; i < one.weights.size(); ++i)
      ASSERT_NEAR(loaded.weights[i], one.weights[i], tolerance) << i;
  }

  TempDir dir_;
};

TEST_P(OnAMesh, StagesAndSlicesTrainAsOneDevice) { compare(32, 1e-3); }
TEST_P(OnAMesh, DISABLED_StagesAndSlicesTrainAsOneDeviceForAHundredSteps) { compare(100, 5e-3); }

const Json kClipped{{"optimizer", "sgd"}, {"momentum", 0.9}, {"clip_norm", 0.2}};

INSTANTIATE_TEST_SUITE_P(
    MeshOf, OnAMesh,
    testing::Values(
        HybridModel{"mlp", dense_layers(), kClipped, Json::array()},
        // dense_2 is split by columns and dense_4, where the second stage begins, by rows: what
        // crosses the cut is sliced.
        HybridModel{"lamb", dense_layers(), {{"optimizer", "lamb"}, {"epsilon", 0.1}}, {"dense_4"}},
        HybridModel{"attention", attention_layers(), kClipped, Json::array()}),
    [](const auto& each) { return each.param.name; });

// Two pipelines of two stages of two slices, each pipeline with half of the batch. The second stage
// has nothing to slice, so norms must count it on only one of its ranks.
TEST(Hybrids, TrainAsOneDeviceOnEightRanks) {
  TempDir dir;
  const auto job = [&](int64_t batch, const char* out) {
    Json list = dense_layers();
    list.erase(2);  // its masks depend on the order of rows, which differs in one device's batch
    list.push_back(list.back());
    Json made = layers(job_of(dir, batch, dir.path(out), 104), list);
    made["optimizer"] = kClipped;
    made["train"]["steps"] = 6;
    return made;
  };
  const Outcome one = run(job(24, "one"), Start::new_run, nullptr, {});
  ASSERT_FALSE(one.error) << one.error->what();
  const auto ranks = on_mesh(job(12, "mesh"), {2, 2, 2}, {"dense_6"});
  expect_no_errors(ranks);
  expect_same_losses(dir.path("mesh"), dir.path("one"), 1e-4);
  for (const size_t rank : {0, 1, 4, 5}) {
    EXPECT_EQ(ranks[rank].weights, ranks[0].weights) << "the first stage, bit for bit";
    EXPECT_EQ(ranks[rank + 2].weights, ranks[2].weights) << "the second stage, bit for bit";
  }
  for (const Outcome& rank : ranks) EXPECT_NEAR(rank.end.eval_loss, one.end.eval_loss, 1e-4);
}

TEST(Hybrids, GoOnOnOtherMeshes) {
  TempDir dir;
  Json whole = layers(job_of(dir, 24, dir.path("whole")), dense_layers());
  whole["optimizer"] = {{"optimizer", "adamw"}, {"clip_norm", 0.5}, {"ema_decay", 0.9}};
  whole["schedule"]["learning_rate"] = 0.002;
  whole["train"] = {{"steps", 10}, {"planned_steps", 10}};
  ASSERT_FALSE(run(whole, Start::new_run, nullptr, {}).error);
  const auto until = [&](int steps) {
    Json job = whole;
    job["output"]["dir"] = dir.path("meshes");
    job["train"]["steps"] = steps;
    return job;
  };
  const auto first = run(until(2), Start::new_run, nullptr, {});
  ASSERT_FALSE(first.error) << first.error->what();
  int steps = 2;
  for (const MeshShape& mesh :
       {MeshShape{1, 2, 2}, MeshShape{1, 1, 2}, MeshShape{1, 2, 2}, MeshShape{1, 3, 1}})
    expect_no_errors(on_mesh(until(steps += 2), mesh, Json::array(), Start::resume));
  expect_same_losses(dir.path("meshes"), dir.path("whole"), 5e-4);
}

TEST(Hybrids, AreCutByWhatWasMeasured) {
  TempDir dir;
  Json job = layers(job_of(dir, 24, dir.path("one")), attention_layers());
  job["train"]["steps"] = 3;
  ASSERT_FALSE(run(job, Start::new_run, nullptr, {}).error);
  for (const MeshShape& mesh : {MeshShape{1, 3, 1}, MeshShape{1, 2, 2}}) {
    Json own = meshed(job, mesh);
    own["parallel"]["partition"] = "measured";
    own["output"]["dir"] = dir.path(cat("mesh", mesh.tensor));
    std::mutex mutex;
    std::string told;
    set_log_hook([&](LogLevel, const char* message) {
      const std::lock_guard lock(mutex);
      if (log_subject() == LogSubject::partition) told += message;
    });
    const auto ranks = together(mesh.size(), [&](int) { return own; });
    set_log_hook({});
    expect_no_errors(ranks);
    expect_same_losses(dir.path(cat("mesh", mesh.tensor)), dir.path("one"), 1e-4);
    EXPECT_NE(told.find("cut where the slowest takes the least time"), std::string::npos) << told;
    EXPECT_NE(told.find(" ms a micro-batch, "), std::string::npos) << told;
  }
}

TEST(Hybrids, AgreeOnTheLossScale) {
  TempDir dir;
  Json job = overflowing(job_of(dir, 24, dir.path("one")));
  ASSERT_FALSE(run(job, Start::new_run, nullptr, {}).error);
  job["output"]["dir"] = dir.path("mesh");
  expect_no_errors(on_mesh(job, {1, 2, 2}, Json::array({"last"})));
  expect_same_skips(dir.path("mesh"), dir.path("one"));
  expect_same_losses(dir.path("mesh"), dir.path("one"), 0.02);
}

TEST(Hybrids, TellAllThatAStepWasNotFinite) {
  TempDir dir;
  Json job = layers(job_of(dir, 24), dense_layers());
  job["schedule"]["learning_rate"] = 1000;
  const auto ranks = on_mesh(job, {1, 2, 2});
  for (const Outcome& rank : ranks) {
    ASSERT_TRUE(rank.error);
    EXPECT_EQ(rank.error->code(), Code::not_finite) << rank.error->what();
    EXPECT_EQ(std::string(rank.error->what()), std::string(ranks[0].error->what()));
  }
}

}  // namespace
}  // namespace etr::test
