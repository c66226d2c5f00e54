#include "parallel/data_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <numeric>

#include "core/error.h"
#include "exchange/local.h"
#include "parallel/worker.h"

namespace etr::test {
namespace {

using exchange::Group;
using parallel::Bucket;

constexpr const char* kSmallResnet = R"({"layers": [
    {"layer": "conv2d", "filters": 6, "kernel": 3, "bias": false}, {"layer": "batch_norm", "activation": "relu"},
    {"layer": "residual", "activation": "relu", "layers": [
        {"layer": "conv2d", "filters": 6, "kernel": 3, "bias": false}, {"layer": "batch_norm", "activation": "relu"},
        {"layer": "conv2d", "filters": 6, "kernel": 3, "bias": false}, {"layer": "batch_norm"}]},
    {"layer": "global_avg_pool"}, {"layer": "dense", "units": 5}]})";

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all{
      {"mlp",
       R"({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 33}, {"layer": "relu"},
                  {"layer": "dense", "units": 5}]})",
       {3, 7}},
      {"dropout",
       R"({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 33}, {"layer": "dropout"},
                      {"layer": "dense", "units": 5}]})",
       {3, 7}},
      {"convolutions",
       R"({"layers": [{"layer": "conv2d", "filters": 6, "kernel": 3}, {"layer": "relu"},
                           {"layer": "max_pool"}, {"layer": "flatten"}, {"layer": "dense", "units": 5}]})",
       {8, 8, 3},
       R"({"optimizer": "adam", "clip_norm": 0.5})"},
      {"accumulated",
       R"({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 33}, {"layer": "dropout"},
                      {"layer": "dense", "units": 5}]})",
       {3, 7},
       R"({"optimizer": "sgd", "momentum": 0.9, "accumulate": 3})"},
      {"batch_norm", kSmallResnet, {8, 8, 3}, R"({"optimizer": "sgd", "momentum": 0.9})", true},
      {"batch_norm_accumulated",
       kSmallResnet,
       {8, 8, 3},
       R"({"optimizer": "sgd", "momentum": 0.9, "accumulate": 3})",
       true},
  };
  return all;
}

constexpr uint32_t kSteps = 30;

Outcome alone(const Problem& problem, int64_t rows) {
  Worker worker(problem, rows, device());
  for (uint32_t step = 0; step < kSteps; ++step) worker.step(step, 0, rows);
  return {worker.results(), worker.weights()};
}

// Each rank with a device, and rows, of its own: counts[rank] of them.
std::vector<Outcome> together(const Problem& problem, int64_t rows,
                              const std::vector<int64_t>& counts, double bucket_mb) {
  std::vector<Group> groups = exchange::local_groups(static_cast<int>(counts.size()), 30);
  std::vector<std::future<Outcome>> ranks;
  for (size_t rank = 0; rank < counts.size(); ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      const int64_t first = std::accumulate(
          counts.begin(), counts.begin() + static_cast<ptrdiff_t>(rank), int64_t{0});
      const auto own = std::make_shared<gpu::Device>(device_options());
      DataParallel parallel(std::move(groups[rank]), own, {bucket_mb, problem.sync_batch_norm});
      Worker worker(problem, rows, own, &parallel);
      for (uint32_t step = 0; step < kSteps; ++step) worker.step(step, first, counts[rank]);
      return Outcome{worker.results(), worker.weights()};
    }));
  std::vector<Outcome> out;
  for (auto& rank : ranks) out.push_back(rank.get());
  return out;
}

void expect_same_run(const std::vector<Outcome>& ranks, const Outcome& one) {
  for (const Outcome& rank : ranks) {
    EXPECT_EQ(rank.weights, ranks[0].weights) << "to the bit";
    ASSERT_EQ(rank.results.size(), kSteps);
    for (uint32_t step = 0; step < kSteps; ++step) {
      EXPECT_EQ(rank.results[step].outputs, ranks[0].results[step].outputs);
      EXPECT_NEAR(rank.results[step].outputs[0][0], one.results[step].outputs[0][0], 2e-4) << step;
      EXPECT_NEAR(rank.results[step].outputs[1][0], one.results[step].outputs[1][0], 1e-6) << step;
    }
  }
  ASSERT_EQ(ranks[0].weights.size(), one.weights.size());
  for (size_t i = 0; i < one.weights.size(); ++i)
    ASSERT_NEAR(ranks[0].weights[i], one.weights[i], 2e-4) << i;
}

class OfProblem : public testing::TestWithParam<Problem> {};

TEST_P(OfProblem, RanksTogetherAreOneDeviceWithAllTheirRows) {
  const Outcome one = alone(GetParam(), 12);
  for (const double bucket_mb : {1000.0, 1e-6})
    expect_same_run(together(GetParam(), 6, {6, 6}, bucket_mb), one);
  expect_same_run(together(GetParam(), 4, {4, 4, 4}, 1e-3), one);
}

TEST_P(OfProblem, RanksMayHaveFewerRows) {
  expect_same_run(together(GetParam(), 6, {6, 1, 3}, 1e-3), alone(GetParam(), 10));
}

// Each rank's own moments are another model.
TEST(SyncBatchNorm, IsWhatMakesRanksAsOneDevice) {
  Problem problem = problems()[4];
  const Outcome one = alone(problem, 12);
  problem.sync_batch_norm = false;
  const Outcome apart = together(problem, 6, {6, 6}, 1e-3)[0];
  float most = 0;
  for (size_t i = 0; i < one.weights.size(); ++i)
    most = std::max(most, std::abs(one.weights[i] - apart.weights[i]));
  EXPECT_GT(most, 2e-2f);
}

// The second rank's third step; the update that it belongs to, and all after it, are left out on both.
TEST_P(OfProblem, WhatIsNotFiniteOnOneRankIsSoOnAll) {
  std::vector<Group> groups = exchange::local_groups(2, 30);
  struct Found {
    std::vector<uint32_t> not_finite;
    std::vector<float> before, after;
  };
  std::vector<std::future<Found>> ranks;
  for (size_t rank = 0; rank < 2; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      const auto own = std::make_shared<gpu::Device>(device_options());
      DataParallel parallel(std::move(groups[rank]), own, {1e-3, GetParam().sync_batch_norm});
      Worker worker(GetParam(), 4, own, &parallel);
      Found found;
      for (uint32_t step = 0; step < 6; ++step) {
        if (step == 2) {
          worker.wait();
          found.before = worker.weights(/*states=*/false);
        }
        worker.step(step, static_cast<int64_t>(4 * rank), 4, step == 2 && rank == 1);
      }
      for (const graph::StepResult& result : worker.results())
        found.not_finite.push_back(result.not_finite);
      found.after = worker.weights(/*states=*/false);
      return found;
    }));
  const Found first = ranks[0].get(), second = ranks[1].get();
  EXPECT_EQ(first.not_finite, (std::vector<uint32_t>{0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(second.not_finite, first.not_finite);
  EXPECT_EQ(first.after, first.before);
  EXPECT_EQ(second.after, first.before);
}

TEST_P(OfProblem, ARankThatIsLostEndsTheStepAndChangesNothing) {
  std::vector<Group> groups = exchange::local_groups(2, 5);
  const auto leaver = std::async(std::launch::async, [&] {
    const auto own = std::make_shared<gpu::Device>(device_options());
    DataParallel parallel(std::move(groups[1]), own, {1e-3, GetParam().sync_batch_norm});
    Worker worker(GetParam(), 4, own, &parallel);
    for (uint32_t step = 0; step < 3; ++step) worker.step(step, 4, 4);
    worker.wait();
  });
  const auto own = std::make_shared<gpu::Device>(device_options());
  DataParallel parallel(std::move(groups[0]), own, {1e-3, GetParam().sync_batch_norm});
  Worker worker(GetParam(), 4, own, &parallel);
  for (uint32_t step = 0; step < 3; ++step) worker.step(step, 0, 4);
  worker.wait();
  leaver.wait();
  const std::vector<float> before = worker.weights();
  for (uint32_t step = 3; step < 5; ++step) {  // and the next one, too
    worker.step(step, 0, 4);
    try {
      worker.wait();
      ADD_FAILURE() << "no error";
    } catch (const exchange::RankLost& error) {
      EXPECT_EQ(error.missing(), std::vector{1}) << error.what();
    }
  }
  EXPECT_EQ(worker.weights(), before);
}

INSTANTIATE_TEST_SUITE_P(DataParallel, OfProblem, testing::ValuesIn(problems()),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace etr::test
