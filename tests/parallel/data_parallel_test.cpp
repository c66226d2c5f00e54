#include "parallel/data_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <numeric>

#include "core/error.h"
#include "exchange/engine_table.h"
#include "exchange/local.h"
#include "parallel/worker.h"

namespace etr::test {
namespace {

using exchange::Group;
using parallel::Compression;
using parallel::DataParallelOptions;

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
      {"class_weights",
       R"({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 33}, {"layer": "relu"},
                      {"layer": "dense", "units": 5}], "loss": {"class_weights": [1, 0.25, 1, 1, 3]}})",
       {3, 7}},
      {"ignored_labels",
       R"({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 5}],
           "loss": {"ignore_index": 2, "class_weights": [1, 0.25, 1, 1, 3]}})",
       {3, 7},
       R"({"optimizer": "sgd", "momentum": 0.9, "accumulate": 3})"},
  };
  return all;
}

constexpr uint32_t kSteps = 30;

Outcome alone(const Problem& problem, int64_t rows) {
  Worker worker(problem, rows, device());
  for (uint32_t step = 0; step < kSteps; ++step) worker.step(step, 0, rows);
  return {worker.results(), worker.weights()};
}

// Trains ranks together, each with its own device and its own counts[rank] rows.
std::vector<Outcome> ranks_together(const Problem& problem, int64_t rows,
                                    const std::vector<int64_t>& counts,
                                    const DataParallelOptions& options,
                                    std::vector<Group> groups = {}) {
  if (groups.empty()) groups = exchange::local_groups(static_cast<int>(counts.size()), 30);
  std::vector<std::future<Outcome>> ranks;
  for (size_t rank = 0; rank < counts.size(); ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      const int64_t first = std::accumulate(
          counts.begin(), counts.begin() + static_cast<ptrdiff_t>(rank), int64_t{0});
      const auto own = std::make_shared<gpu::Device>(device_options());
      DataParallelOptions own_options = options;
      own_options.sync_batch_norm = problem.sync_batch_norm;
      DataParallel parallel(std::move(groups[rank]), own, own_options);
      Worker worker(problem, rows, own, &parallel);
      for (uint32_t step = 0; step < kSteps; ++step) worker.step(step, first, counts[rank]);
      return Outcome{worker.results(), worker.weights()};
    }));
  std::vector<Outcome> out;
  for (auto& rank : ranks) out.push_back(rank.get());
  return out;
}

void expect_same_run(const std::vector<Outcome>& ranks, const Outcome& one,
                     double tolerance = 2e-4) {
  for (const Outcome& rank : ranks) {
    EXPECT_EQ(rank.weights, ranks[0].weights) << "bit for bit";
    ASSERT_EQ(rank.results.size(), kSteps);
    for (uint32_t step = 0; step < kSteps; ++step) {
      EXPECT_EQ(rank.results[step].outputs, ranks[0].results[step].outputs);
      EXPECT_NEAR(rank.results[step].outputs[0][0], one.results[step].outputs[0][0], tolerance)
          << step;
      if (tolerance < 1e-3) {
        EXPECT_NEAR(rank.results[step].outputs[1][0], one.results[step].outputs[1][0], 1e-6)
            << step;
      }
    }
  }
  ASSERT_EQ(ranks[0].weights.size(), one.weights.size());
  for (size_t i = 0; i < one.weights.size(); ++i)
    ASSERT_NEAR(ranks[0].weights[i], one.weights[i], tolerance) << i;
}

class OfProblem : public testing::TestWithParam<Problem> {};

TEST_P(OfProblem, RanksTogetherAreOneDeviceWithAllTheirRows) {
  const Outcome one = alone(GetParam(), 12);
  for (const double bucket_mb : {1000.0, 1e-6})
    expect_same_run(ranks_together(GetParam(), 6, {6, 6}, {bucket_mb}), one);
  expect_same_run(ranks_together(GetParam(), 4, {4, 4, 4}, {1e-3}), one);
}

TEST_P(OfProblem, RanksMayHaveFewerRows) {
  expect_same_run(ranks_together(GetParam(), 6, {6, 1, 3}, {1e-3}), alone(GetParam(), 10));
}

// Only every fifth row counts, so two ranks with a row each often have nothing to learn from, or
// only one of them has.
TEST(DataParallel, RanksMayHaveNothingToLearnFrom) {
  Problem problem = problems()[0];
  problem.model =
      R"({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 5}],
          "loss": {"class_weights": [0, 0, 0, 0, 2]}})";
  const Outcome one = alone(problem, 2);
  expect_same_run(ranks_together(problem, 1, {1, 1}, {}), one);
  expect_same_run(ranks_together(problem, 1, {1, 1}, {.compression = Compression::bf16}), one,
                  1e-2);
  problem.optimizer = R"({"optimizer": "sgd", "momentum": 0.9, "accumulate": 2})";
  expect_same_run(ranks_together(problem, 1, {1, 1}, {}), alone(problem, 2));
}

// If each rank normalises with its own moments, the weights differ.
TEST(SyncBatchNorm, IsWhatMakesRanksAsOneDevice) {
  Problem problem = problems()[4];
  const Outcome one = alone(problem, 12);
  problem.sync_batch_norm = false;
  const Outcome apart = ranks_together(problem, 6, {6, 6}, {1e-3})[0];
  float most = 0;
  for (size_t i = 0; i < one.weights.size(); ++i)
    most = std::max(most, std::abs(one.weights[i] - apart.weights[i]));
  EXPECT_GT(most, 2e-2f);
}

// The third step of rank 1 has a NaN. The update that the step belongs to and all later ones are
// left out on both ranks.
void expect_verdict_of_all(const Problem& problem, Compression format) {
  std::vector<Group> groups = exchange::local_groups(2, 30);
  struct Found {
    std::vector<uint32_t> not_finite;
    std::vector<float> before, after;
  };
  std::vector<std::future<Found>> ranks;
  for (size_t rank = 0; rank < 2; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      const auto own = std::make_shared<gpu::Device>(device_options());
      DataParallel parallel(
          std::move(groups[rank]), own,
          {.bucket_mb = 1e-3, .sync_batch_norm = problem.sync_batch_norm, .compression = format});
      Worker worker(problem, 4, own, &parallel);
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

TEST_P(OfProblem, WhatIsNotFiniteOnOneRankIsSoOnAll) {
  expect_verdict_of_all(GetParam(), Compression::none);
}

// The problems whose steps depend smoothly on the gradients. With Adam, or batch normalisation of
// few rows, rounding errors grow.
class OfSmoothProblem : public testing::TestWithParam<Problem> {};

// Gradients of 16 bits have relative errors of up to 2^-8 (bf16) and 2^-11 (fp16), which are added
// to the next gradients.
TEST_P(OfSmoothProblem, CompressedRanksAreOneDeviceButForRounding) {
  expect_same_run(
      ranks_together(GetParam(), 6, {6, 6}, {.bucket_mb = 1000, .compression = Compression::bf16}),
      alone(GetParam(), 12), 1e-2);
  expect_same_run(ranks_together(GetParam(), 6, {6, 1, 3},
                                 {.bucket_mb = 1e-6, .compression = Compression::fp16}),
                  alone(GetParam(), 10), 2e-3);
}

TEST_P(OfSmoothProblem, WhatIsNotFiniteTravelsCompressed) {
  for (const Compression format : {Compression::bf16, Compression::fp16})
    expect_verdict_of_all(GetParam(), format);
}

INSTANTIATE_TEST_SUITE_P(DataParallel, OfSmoothProblem,
                         testing::Values(problems()[0], problems()[3], problems()[6],
                                         problems()[7]),
                         [](const auto& of) { return of.param.name; });

TEST_P(OfProblem, ARankThatIsLostEndsTheStepAndChangesNothing) {
  std::vector<Group> groups = exchange::local_groups(2, 60);
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
  for (uint32_t step = 3; step < 5; ++step) {  // the next step fails, too
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

// An engine that wraps a group and counts the bytes that its sums would send.
class Counting {
 public:
  Counting(Group group, std::atomic<uint64_t>& bytes) : group_(std::move(group)), bytes_(bytes) {}

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  void all_reduce(void* data, uint64_t count, exchange::Number number,
                  exchange::Reduction reduction, double) {
    bytes_ += count * exchange::number_size(number);
    exchange::with_number(number, [&]<typename T>(T) {
      group_.all_reduce(std::span(static_cast<T*>(data), count), reduction);
    });
  }
  void broadcast(void* data, uint64_t bytes, int32_t root, double) {
    group_.broadcast({static_cast<std::byte*>(data), bytes}, root);
  }
  void reduce_scatter(const void*, const uint64_t*, void*, exchange::Number, exchange::Reduction,
                      double) {
    unused();
  }
  void all_gather(const void*, const uint64_t*, void*, double) { unused(); }
  void barrier(double) { unused(); }
  void send(const void*, uint64_t, int32_t, uint32_t, double) { unused(); }
  void receive(void*, uint64_t, int32_t, uint32_t, double) { unused(); }
  Counting* split(int32_t, int32_t, double) { return unused(), nullptr; }
  void abort(const std::string& reason) { group_.abort(reason); }

 private:
  static void unused() { fail(Code::internal, "data parallelism does not do this"); }

  Group group_;
  std::atomic<uint64_t>& bytes_;
};

uint64_t bytes_of_a_step(Compression format) {
  std::atomic<uint64_t> bytes{0};
  std::vector<Group> groups;
  for (Group& group : exchange::local_groups(2, 30))
    groups.emplace_back(exchange::table_of(new Counting(std::move(group), bytes)), 30);
  const Problem wide{"wide",
                     R"({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 1024},
                                    {"layer": "relu"}, {"layer": "dense", "units": 5}]})",
                     {3, 7}};
  ranks_together(wide, 4, {4, 4}, {.bucket_mb = 1000, .compression = format}, std::move(groups));
  return bytes / 2 / kSteps;
}

TEST(DataParallel, CompressedGradientsAreHalfTheBytes) {
  const uint64_t whole = bytes_of_a_step(Compression::none);
  EXPECT_GT(whole, (21 * 1024 + 1024 * 5) * sizeof(float));
  for (const Compression format : {Compression::bf16, Compression::fp16})
    EXPECT_NEAR(static_cast<double>(bytes_of_a_step(format)), static_cast<double>(whole) / 2, 300);
}

INSTANTIATE_TEST_SUITE_P(DataParallel, OfProblem, testing::ValuesIn(problems()),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace etr::test
