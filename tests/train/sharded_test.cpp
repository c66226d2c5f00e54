// Ranks that divide the update of the weights among them (zero_stage). The run equals that of ranks
// that do not.
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "core/log.h"
#include "core/platform.h"
#include "train/together.h"

namespace etr::test {
namespace {

// Returns the job with this zero_stage, and with buckets so small that gradients and weights take
// many exchanges.
Json sharded(Json job, int stage) {
  job["parallel"]["zero_stage"] = stage;
  job["parallel"]["bucket_mb"] = 0.001;
  return job;
}

struct Update {
  std::string name;
  Json optimizer;
  int ranks = 2;
  double tolerance = 0;  // of stage 2, whose sums and norms may be rounded differently
};

void PrintTo(const Update& update, std::ostream* out) { *out << update.name; }

Json with(const Update& update, Json job) {
  job["optimizer"] = update.optimizer;
  if (update.optimizer["optimizer"] != "sgd") job["schedule"]["learning_rate"] = 0.003;
  return job;
}

class SharedOutUpdates : public testing::TestWithParam<Update> {};

void expect_same_run(const std::vector<Outcome>& ranks, const std::vector<Outcome>& whole,
                     double tolerance) {
  for (const Outcome& rank : ranks) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.weights, ranks[0].weights) << "bit for bit";
    ASSERT_EQ(rank.evaluations.size(), whole[0].evaluations.size());
    for (size_t i = 0; i < rank.evaluations.size(); ++i)
      EXPECT_NEAR(rank.evaluations[i].eval_loss, whole[0].evaluations[i].eval_loss, tolerance);
    if (tolerance == 0) {
      EXPECT_EQ(rank.weights, whole[0].weights) << "bit for bit";
      continue;
    }
    ASSERT_EQ(rank.weights.size(), whole[0].weights.size());
    for (size_t i = 0; i < rank.weights.size(); ++i)
      ASSERT_NEAR(rank.weights[i], whole[0].weights[i], tolerance) << i;
  }
}

// The last batch of an epoch has fewer rows.
TEST_P(SharedOutUpdates, AreThoseOfEachRankAlone) {
  TempDir dir;
  Json job = with(GetParam(), job_of(dir, 24, "", 201));
  job["train"]["steps"] = 12;
  job["pipeline"]["stages"][4]["drop_remainder"] = false;
  const auto ranks = [&](int stage) {
    return together(GetParam().ranks, [&](int) { return sharded(job, stage); });
  };
  const auto whole = ranks(0);
  expect_same_run(ranks(1), whole, 0);
  expect_same_run(ranks(2), whole, GetParam().tolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, SharedOutUpdates,
    testing::Values(
        Update{"momentum", {{"optimizer", "sgd"}, {"momentum", 0.9}}, 4},
        Update{"adamw", {{"optimizer", "adamw"}, {"ema_decay", 0.9}}, 3},
        Update{"clipped", {{"optimizer", "adamw"}, {"clip_norm", 0.1}}, 2, 1e-4},
        Update{
            "accumulated", {{"optimizer", "sgd"}, {"momentum", 0.9}, {"accumulate", 3}}, 3, 1e-4},
        Update{"proximal", {{"optimizer", "lion"}, {"proximal", 0.01}, {"clip_value", 1}}, 2}),
    [](const auto& of) { return of.param.name; });

TEST(SharedOutUpdates, StayTheSameForAHundredSteps) {
  TempDir dir;
  Json job = job_of(dir, 8);
  job["train"]["steps"] = 100;
  const auto whole = together(2, [&](int) { return sharded(job, 0); });
  for (const int stage : {1, 2})
    expect_same_run(together(2, [&](int) { return sharded(job, stage); }), whole, 0);
}

TEST(SharedOutUpdates, GoWithNumbersOf16Bits) {
  TempDir dir;
  Json job = job_of(dir, 24);
  job["train"]["steps"] = 5;
  job["model"]["precision"] = "fp16";
  expect_same_run(together(2, [&](int) { return sharded(job, 2); }),
                  together(2, [&](int) { return sharded(job, 0); }), 0);
  job["model"]["precision"] = "bf16";
  job["parallel"]["compression"] = "bf16";
  expect_same_run(together(2, [&](int) { return sharded(job, 1); }),
                  together(2, [&](int) { return sharded(job, 0); }), 0);
}

// There are more ranks than parts of the weights, so some ranks have none.
TEST(SharedOutUpdates, MayBeSmallerThanTheirRanks) {
  TempDir dir;
  Json job = job_of(dir, 24);
  job["model"]["layers"] = {{{"layer", "global_avg_pool"}}, {{"layer", "dense"}, {"units", 4}}};
  job["optimizer"] = {{"optimizer", "adamw"}, {"clip_norm", 0.1}};
  job["train"]["steps"] = 5;
  const auto whole = together(3, [&](int) { return sharded(job, 0); });
  for (const int stage : {1, 2})
    expect_same_run(together(3, [&](int) { return sharded(job, stage); }), whole, 1e-5);
}

TEST(SharedOutUpdates, AreLeftOutOnAllWhereOneIsNotFinite) {
  TempDir dir;
  Json job = job_of(dir, 24);
  job["schedule"]["learning_rate"] = 1000;
  for (const int stage : {1, 2}) {
    const auto ranks = together(3, [&](int) { return sharded(job, stage); });
    for (const Outcome& rank : ranks) {
      ASSERT_TRUE(rank.error);
      EXPECT_EQ(rank.error->code(), Code::not_finite) << rank.error->what();
    }
  }
}

std::string newest(const std::string& out) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(out + "/checkpoints"))
    found = std::max(found, entry.path().string());
  return found;
}

// The ranks' parts of the state are saved as one device's state, from which any number of ranks can
// resume.
TEST(SharedOutUpdates, SaveAndResumeOneDevicesCheckpoint) {
  TempDir dir;
  const std::string folders[] = {dir.path("whole"), dir.path("shared")};
  const auto train = [&](int folder, int steps, int size, int stage) {
    Json job = with({"", {{"optimizer", "adamw"}, {"ema_decay", 0.9}, {"proximal", 0.01}}},
                    job_of(dir, 12, folders[folder]));
    job["train"]["steps"] = steps;
    job.erase("evaluation");
    for (const Outcome& rank : together(
             size, [&](int) { return sharded(job, stage); },
             steps == 4 ? Start::new_run : Start::resume))
      ASSERT_FALSE(rank.error) << rank.error->what();
    for (const char* file : {"weights.safetensors", "optimizer.safetensors"})
      EXPECT_EQ(platform::read_file(cat(newest(folders[folder]), "/", file)),
                platform::read_file(cat(newest(folders[0]), "/", file)))
          << file << " after step " << steps;
  };
  const struct {
    int steps, ranks, stage;  // the stage of one run; in the other, each rank updates everything
  } parts[] = {{4, 4, 1}, {8, 2, 2}, {12, 1, 1}, {16, 3, 0}, {20, 3, 1}};
  for (const auto& part : parts) {
    train(0, part.steps, part.ranks, 0);
    train(1, part.steps, part.ranks, part.stage);
  }
}

// Returns the job with twelve wide layers, of which each is a small part of the model.
Json deep(Json job) {
  const Json dense = {{"layer", "dense"}, {"units", 360}, {"activation", "relu"}};
  Json& layers = job["model"]["layers"] = Json::array({{{"layer", "flatten"}}});
  layers.insert(layers.end(), 12, dense);
  layers.push_back({{"layer", "dense"}, {"units", 4}});
  job["optimizer"] = {{"optimizer", "adamw"}};
  job["schedule"]["learning_rate"] = 1e-4;
  job["train"]["steps"] = 2;
  job["parallel"]["bucket_mb"] = 0.25;
  job.erase("evaluation");
  return job;
}

// By the device's own count of allocated bytes.
TEST(SharedOutUpdates, FitWhereWholeOnesDoNot) {
  TempDir dir;
  const Json job = deep(job_of(dir, 24));
  gpu::DeviceOptions options = device_options();
  std::mutex mutex;
  double taken = 0, parameters = 0;  // bytes, of the rank with the most
  std::string told;
  const Watch measure = [&](int, Trainer& trainer, const Event& event) {
    if (event.kind != EventKind::end) return;
    const std::lock_guard lock(mutex);
    const train::Learner& learner = trainer.learner();
    taken = std::max(taken, static_cast<double>(learner.device()->allocated_bytes()));
    parameters = static_cast<double>(learner.trainable()) * sizeof(float);
  };
  const auto train = [&](int stage) {
    Json of = job;
    of["parallel"]["zero_stage"] = stage;
    taken = 0;
    told.clear();
    for (const Outcome& rank : together(
             4, [&](int) { return of; }, Start::new_run, measure, {}, options))
      if (rank.error) told += rank.error->what();
    return told.empty();
  };
  ASSERT_TRUE(train(0)) << told;
  const double all = taken;
  // With 4 ranks, three quarters of Adam's two moments are on other ranks.
  options.memory_limit_bytes = static_cast<uint64_t>(all - parameters);
  EXPECT_FALSE(train(0));
  EXPECT_NE(told.find("memory limit"), std::string::npos) << told;
  EXPECT_TRUE(train(1)) << told;
  const double first = taken;
  EXPECT_LE(first, all - parameters);
  // A plan has only a few gradients at a time, besides the quarter that is reduced on this rank.
  options.memory_limit_bytes = static_cast<uint64_t>(first - 0.4 * parameters);
  EXPECT_TRUE(train(2)) << told << " all " << all << ", of them with stage 1 " << first;
}

TEST(SharedOutUpdates, SayOnceWhatTheySave) {
  TempDir dir;
  std::mutex mutex;
  std::vector<std::string> lines;
  set_log_hook([&](LogLevel, const char* message) {
    const std::lock_guard lock(mutex);
    if (log_subject() == LogSubject::partition) lines.emplace_back(message);
  });
  Json job = job_of(dir, 24);
  job["train"]["steps"] = 3;
  together(2, [&](int) { return sharded(job, 1); });
  set_log_hook({});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("2 ranks shard the optimizer state (zero_stage 1): each saves"),
            std::string::npos)
      << lines[0];
}

TEST(SharedOutUpdates, RefuseWhatNeedsWholeTensors) {
  TempDir dir;
  const auto error_of = [&](const Json& options, const Json& optimizer = {{"optimizer", "sgd"}}) {
    Json job = job_of(dir, 24);
    job["parallel"] = options;
    job["optimizer"] = optimizer;
    try {
      Job::parse(job.dump(), "job");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto expect = [&](const std::string& error, const std::string& name) {
    EXPECT_NE(error.find(name), std::string::npos) << error;
    EXPECT_NE(error.find("zero_stage"), std::string::npos) << error;
  };
  expect(error_of({{"zero_stage", 1}}, {{"optimizer", "lars"}}), "'lars'");
  expect(error_of({{"zero_stage", 2}}, {{"optimizer", "lamb"}}), "'lamb'");
  expect(error_of({{"zero_stage", 2}, {"compression", "bf16"}}), "compression");
  expect(error_of({{"zero_stage", 1}, {"mesh", {{"tensor", 2}}}}), "mesh");
  expect(error_of({{"zero_stage", 1}, {"mesh", {{"pipeline", 2}}}}), "mesh");
  for (const char* algorithm : {"diloco", "downpour", "easgd"})
    expect(error_of({{"zero_stage", 1}, {"algorithm", algorithm}}), algorithm);
  expect(error_of({{"zero_stage", 3}}), "zero_stage");
  EXPECT_EQ(error_of({{"zero_stage", 2}}), "");
}

}  // namespace
}  // namespace etr::test
