// Trainers of one job that train together, as threads with a device each.
#include "train/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <optional>

#include "core/error.h"
#include "exchange/local.h"
#include "support/device.h"
#include "train/band_job.h"
#include "train/trainer.h"

namespace etr::test {
namespace {

using train::Event;
using train::EventKind;
using train::Job;
using train::Ranks;
using train::Start;
using train::Trainer;

struct Outcome {
  Event end;
  std::vector<Event> evaluations;
  std::vector<float> weights;
  std::optional<Error> error;
};

std::vector<float> weights_of(Trainer& trainer) {
  std::vector<float> out;
  for (const pipeline::Field& field : trainer.shaped_learner().weights("")) {
    const auto values = field.tensor.view<float>();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

using Watch = std::function<void(int rank, Trainer& trainer, const Event& event)>;

Outcome run(const Json& job, Start start, std::unique_ptr<Ranks> ranks, const Watch& watch) {
  const int rank = ranks ? ranks->rank() : 0;
  const auto kernels =
      std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(device_options()));
  Outcome out;
  try {
    Trainer trainer(kernels, Job::parse(job.dump(), "job"), start, std::move(ranks));
    do {
      out.end = trainer.next_event();
      if (out.end.kind == EventKind::evaluation) out.evaluations.push_back(out.end);
      if (watch) watch(rank, trainer, out.end);
    } while (out.end.kind != EventKind::end);
    out.weights = weights_of(trainer);
  } catch (const Error& error) {
    out.error = error;
  }
  return out;
}

std::vector<Outcome> together(int size, const std::function<Json(int rank)>& job,
                              Start start = Start::fresh, const Watch& watch = {}) {
  std::vector<exchange::Group> groups = exchange::local_groups(size, 30);
  std::vector<Json> jobs;  // first: their data is written once
  for (int rank = 0; rank < size; ++rank) jobs.push_back(job(rank));
  std::vector<std::future<Outcome>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      auto own = std::make_unique<Ranks>(std::move(groups[static_cast<size_t>(rank)]));
      return run(jobs[static_cast<size_t>(rank)], start, std::move(own), watch);
    }));
  std::vector<Outcome> out;
  for (auto& rank : ranks) out.push_back(rank.get());
  return out;
}

TEST(RanksOfAJob, TrainAsOneWithAllTheirRows) {
  TempDir dir;
  const Outcome one = run(job_of(dir, 48, dir.path("one")), Start::fresh, nullptr, {});
  ASSERT_FALSE(one.error) << one.error->what();
  for (const int size : {2, 3}) {
    const std::string out = dir.path(cat("out", size));
    const auto ranks = together(size, [&](int) { return job_of(dir, 48 / size, out); });
    for (const Outcome& rank : ranks) {
      ASSERT_FALSE(rank.error) << rank.error->what();
      EXPECT_EQ(rank.end.step, 15u);
      EXPECT_EQ(rank.end.examples, 15u * 48) << "of all ranks";
      EXPECT_EQ(rank.weights, ranks[0].weights) << "to the bit";
      ASSERT_EQ(rank.evaluations.size(), one.evaluations.size());
      for (size_t i = 0; i < one.evaluations.size(); ++i)
        EXPECT_NEAR(rank.evaluations[i].eval_loss, one.evaluations[i].eval_loss, 1e-4);
    }
    const auto rows = steps_of(out), expected = steps_of(dir.path("one"));
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_NEAR(rows[i]["loss"].get<double>(), expected[i]["loss"].get<double>(), 1e-4) << i;
      EXPECT_EQ(rows[i]["examples"], expected[i]["examples"]);
    }
  }
}

// With plain SGD the mean of the weights after a step of each is what the mean of their gradients gives.
TEST(RanksOfAJob, AveragingWeightsInEveryStepIsSynchronousTraining) {
  TempDir dir;
  const auto trained = [&](Json parallel) {
    Json job = job_of(dir, 24);
    job["optimizer"] = {{"optimizer", "sgd"}, {"momentum", 0}};
    job["parallel"] = std::move(parallel);
    return together(2, [&](int) { return job; });
  };
  const auto synchronous = trained(Json::object());
  const auto averaged = trained(
      {{"algorithm", "diloco"}, {"outer_every", 1}, {"outer_rate", 1}, {"outer_momentum", 0}});
  for (const Outcome& rank : averaged) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.end.step, 15u);
    EXPECT_EQ(rank.weights, averaged[0].weights) << "to the bit";
    ASSERT_EQ(rank.weights.size(), synchronous[0].weights.size());
    for (size_t i = 0; i < rank.weights.size(); ++i)
      ASSERT_NEAR(rank.weights[i], synchronous[0].weights[i], 1e-4) << i;
  }
}

// Batch normalisation: in training each rank has moments of its own; what evaluates and what is saved is their mean.
TEST(RanksOfAJob, EvaluateWhatTheySave) {
  TempDir dir;
  Json job = job_of(dir, 24, dir.path("out"));
  Json& layers = job["model"]["layers"];
  layers.insert(layers.begin() + 1, Json{{"layer", "batch_norm"}, {"activation", "relu"}});
  const auto ranks = together(3, [&](int) { return job; });
  for (const Outcome& rank : ranks) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.weights, ranks[0].weights) << "statistics, too";
  }
  Trainer saved(std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(device_options())),
                Job::parse(job.dump(), "job"), Start::evaluate);
  const train::EvalMetrics metrics = saved.evaluate();
  EXPECT_EQ(metrics.samples, 100);
  EXPECT_NEAR(metrics.loss, ranks[0].end.eval_loss, 1e-5);
  EXPECT_NEAR(metrics.accuracy, ranks[0].end.eval_accuracy, 1e-9);
}

// Batch normalisation over the rows of all ranks.
TEST(RanksOfAJob, MayNormaliseTogether) {
  TempDir dir;
  const auto job = [&](const std::string& out, int64_t batch, bool synchronised) {
    Json made = job_of(dir, batch, out);
    Json& layers = made["model"]["layers"];
    layers.insert(layers.begin() + 1, Json{{"layer", "batch_norm"}, {"activation", "relu"}});
    made["train"] = {{"steps", 6}};
    made.erase("evaluation");
    if (synchronised) made["parallel"] = {{"sync_batch_norm", true}};
    return made;
  };
  const Outcome one = run(job("", 48, false), Start::fresh, nullptr, {});
  ASSERT_FALSE(one.error) << one.error->what();
  const auto furthest = [&](bool synchronised) {
    const auto ranks = together(2, [&](int) { return job("", 24, synchronised); });
    float most = 0;
    for (const Outcome& rank : ranks) {
      EXPECT_FALSE(rank.error) << rank.error->what();
      for (size_t i = 0; i < one.weights.size() && !rank.error; ++i)
        most = std::max(most, std::abs(rank.weights[i] - one.weights[i]));
    }
    return most;
  };
  EXPECT_LT(furthest(true), 2e-4f);
  EXPECT_GT(furthest(false), 2e-3f);
}

// Where one rank's data ends, so does the epoch of all.
TEST(RanksOfAJob, EndAnEpochTogether) {
  TempDir dir;
  const auto ranks = together(2, [&](int) {
    Json job = job_of(dir, 8, "",
                      8 * 13);  // seven batches for one rank, six for the other, but for the rest
    job["train"] = {{"epochs", 3}};
    return job;
  });
  for (const Outcome& rank : ranks) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.end.epoch, 3u);
    EXPECT_EQ(rank.end.step, ranks[0].end.step);
    EXPECT_EQ(rank.end.examples, rank.end.step * 16);
  }
}

TEST(RanksOfAJob, AreStoppedByAnyOfThemAndGoOnTogether) {
  TempDir dir;
  const std::string whole = dir.path("whole"), parts = dir.path("parts");
  together(2, [&](int) { return job_of(dir, 24, whole); });
  const auto stopped = together(
      2, [&](int) { return job_of(dir, 24, parts); }, Start::fresh,
      [](int rank, Trainer& trainer, const Event& event) {
        if (rank == 1 && event.kind == EventKind::checkpoint) trainer.stop();
      });
  for (const Outcome& rank : stopped) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.end.step, stopped[0].end.step);
    EXPECT_LT(rank.end.step, 15u);
  }
  const auto ended = together(
      2, [&](int) { return job_of(dir, 24, parts); }, Start::resume);
  for (const Outcome& rank : ended) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.end.step, 15u);
  }
  EXPECT_EQ(losses_of(parts), losses_of(whole)) << "to the bit";
}

// In the middle of an epoch; every sample is trained on once.
TEST(RanksOfAJob, GoOnInAnotherNumber) {
  for (const int size : {1, 3}) {
    TempDir dir;
    const std::string out = dir.path("out");
    const auto job = [&](int) {
      Json own = job_of(dir, 10, out);
      own["train"] = {{"epochs", 1}};
      own["output"]["checkpoint_every_steps"] = 8;
      return own;
    };
    together(2, job, Start::fresh, [](int, Trainer& trainer, const Event& event) {
      if (event.kind == EventKind::checkpoint) trainer.stop();
    });
    EXPECT_EQ(steps_of(out).size(), 8u);
    const auto ranks = together(size, job, Start::resume);
    for (const Outcome& rank : ranks) {
      ASSERT_FALSE(rank.error) << rank.error->what();
      EXPECT_EQ(rank.end.epoch, 1u);
      EXPECT_EQ(rank.end.examples, 400u);
      EXPECT_EQ(rank.end.step, 8u + 240 / (10 * static_cast<unsigned>(size)));
      EXPECT_EQ(rank.weights, ranks[0].weights) << "to the bit";
    }
  }
}

// A checkpoint drops what rounding has left of gradients, in the run that goes on as in one that begins from it.
TEST(RanksOfAJob, CompressedGoOnFromACheckpoint) {
  TempDir dir;
  const auto job = [&](const std::string& out, int steps) {
    Json made = job_of(dir, 24, out);
    made["parallel"] = {{"compression", "bf16"}};
    made["train"] = {{"steps", steps}};
    return made;
  };
  const std::string whole = dir.path("whole"), parts = dir.path("parts"), plain = dir.path("plain");
  together(2, [&](int) { return job(whole, 15); });
  together(2, [&](int) { return job(parts, 8); });
  const auto ended = together(
      2, [&](int) { return job(parts, 15); }, Start::resume);
  for (const Outcome& rank : ended) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.weights, ended[0].weights);
  }
  EXPECT_EQ(losses_of(parts), losses_of(whole)) << "to the bit";
  together(2, [&](int) { return job_of(dir, 24, plain); });
  EXPECT_NE(losses_of(plain), losses_of(whole)) << "nothing was compressed";
}

TEST(RanksOfAJob, EndWithinTheirTime) {
  TempDir dir;
  const auto ranks = together(2, [&](int rank) {
    Json job = job_of(dir, 24);
    job["train"] = {{"seconds", rank == 0 ? 1e6 : 0.3}};
    return job;
  });
  for (const Outcome& rank : ranks) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.end.step, ranks[0].end.step);
  }
}

TEST(RanksOfAJob, AreToldWhyOneOfThemFailed) {
  TempDir dir;
  const auto ranks = together(3, [&](int rank) {
    Json job = job_of(dir, 16);
    if (rank == 1) job["pipeline"]["stages"][0]["pattern"] = dir.path("nowhere.tar");
    return job;
  });
  for (const Outcome& rank : ranks) {
    ASSERT_TRUE(rank.error);
    EXPECT_NE(std::string(rank.error->what()).find("nowhere.tar"), std::string::npos)
        << rank.error->what();
  }
  const auto resumed = together(
      2, [&](int) { return job_of(dir, 16, dir.path("none")); }, Start::resume);
  for (const Outcome& rank : resumed) {
    ASSERT_TRUE(rank.error);
    EXPECT_NE(std::string(rank.error->what()).find("no checkpoint"), std::string::npos)
        << rank.error->what();
  }
}

TEST(RanksOfAJob, SayOnWhichOfThemAStepWasNotFinite) {
  TempDir dir;
  const auto ranks = together(2, [&](int rank) {
    Json job = job_of(dir, 24);
    if (rank == 1) job["schedule"]["learning_rate"] = 1000;  // its own weights leave all bounds
    return job;
  });
  for (const Outcome& rank : ranks) {
    ASSERT_TRUE(rank.error);
    EXPECT_EQ(rank.error->code(), Code::not_finite) << rank.error->what();
  }
  const std::string first = ranks[0].error->what(), second = ranks[1].error->what();
  EXPECT_NE(first.find("not in the part of the batch that rank 0 had"), std::string::npos) << first;
  EXPECT_NE(second.find("the first to be NaN or infinite: "), std::string::npos) << second;
}

}  // namespace
}  // namespace etr::test
