#include "parallel/tensor_parallel.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>

#include "core/error.h"
#include "exchange/local.h"
#include "parallel/mesh.h"
#include "parallel/worker.h"

namespace etr::test {
namespace {

using exchange::Group;
using parallel::Axis;
using parallel::Mesh;
using parallel::MeshShape;
using parallel::TensorParallel;

constexpr int64_t kRows = 12;

const Problem& mlp() {
  static const Problem problem{"mlp",
                               R"({"layers": [{"layer": "flatten"},
                     {"layer": "dense", "units": 24, "activation": "relu"}, {"layer": "dropout", "rate": 0.2},
                     {"layer": "dense", "units": 18, "activation": "relu"},
                     {"layer": "dense", "units": 12, "bias": false}, {"layer": "activation", "function": "tanh"},
                     {"layer": "dense", "units": 5}]})",
                               {3, 7}};
  return problem;
}

// With a gated block besides the usual ones.
const Problem& transformer() {
  static const Problem problem{"transformer",
                               R"({"layers": [
          {"layer": "embedding", "entries": 18, "width": 24}, {"layer": "position_embedding"},
          {"layer": "repeat", "times": 2, "layers": [
              {"layer": "residual", "layers": [{"layer": "layer_norm"}, {"layer": "attention", "heads": 6, "causal": true}]},
              {"layer": "residual", "layers": [{"layer": "layer_norm"}, {"layer": "dense", "units": 36, "activation": "gelu"},
                                               {"layer": "dropout", "rate": 0.1}, {"layer": "dense", "units": 24}]}]},
          {"layer": "layer_norm", "name": "last"},
          {"layer": "dense", "units": 36, "activation": "sigmoid", "name": "gate"},
          {"layer": "dense", "units": 36, "input": ["last"], "name": "value"},
          {"layer": "multiply", "input": ["gate", "value"]}, {"layer": "dense", "units": 24},
          {"layer": "reduce", "axes": [1]}, {"layer": "dense", "units": 5}]})",
                               {7},
                               R"({"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.01})",
                               false,
                               18};
  return problem;
}

Problem with(Problem problem, const std::string& optimizer) {
  problem.optimizer = optimizer;
  return problem;
}

struct Result {
  Outcome outcome;
  std::vector<graph::SplitLayer> layers;
  size_t slices = 0;
  int64_t trainable = 0;
};

Result whole(const Problem& problem, uint32_t steps) {
  Worker worker(problem, kRows, device());
  for (uint32_t step = 0; step < steps; ++step) worker.step(step, 0, kRows);
  return {{worker.results(), worker.weights()}, {}, 0, worker.trainable()};
}

// Trains the ranks of a mesh. As in a trainer, all ranks make their groups from `world` in the same
// order.
std::vector<Result> together(const Problem& problem, uint32_t steps, MeshShape shape) {
  shape = shape.fitted(shape.size());
  std::vector<Group> world = exchange::local_groups(shape.size(), 30);
  std::vector<std::future<Result>> ranks;
  for (int rank = 0; rank < shape.size(); ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      const Mesh mesh(shape, rank, shape.size());
      Group& group = world[static_cast<size_t>(rank)];
      const auto own = std::make_shared<gpu::Device>(device_options());
      Group rows = mesh.line(group, Axis::data), slices = mesh.line(group, Axis::tensor);
      DataParallel parallel(std::move(rows), own, {1e-3},
                            std::make_unique<TensorParallel>(std::move(slices), own));
      const int64_t share = kRows / shape.data;
      Worker worker(problem, share, own, &parallel);
      for (uint32_t step = 0; step < steps; ++step)
        worker.step(step, share * mesh.place(Axis::data), share);
      return Result{{worker.results(), worker.weights()},
                    worker.split().layers,
                    worker.split().slices.size(),
                    worker.trainable()};
    }));
  std::vector<Result> out;
  for (auto& rank : ranks) out.push_back(rank.get());
  return out;
}

void expect_same_result(const std::vector<Result>& ranks, const Result& one, double tolerance) {
  for (const Result& rank : ranks) {
    EXPECT_EQ(rank.outcome.weights, ranks[0].outcome.weights) << "bit for bit";
    ASSERT_EQ(rank.outcome.results.size(), one.outcome.results.size());
    for (size_t step = 0; step < one.outcome.results.size(); ++step) {
      EXPECT_EQ(rank.outcome.results[step].outputs, ranks[0].outcome.results[step].outputs);
      EXPECT_NEAR(rank.outcome.results[step].outputs[0][0], one.outcome.results[step].outputs[0][0],
                  tolerance)
          << step;
    }
    EXPECT_LT(rank.trainable, one.trainable);
  }
  ASSERT_EQ(ranks[0].outcome.weights.size(), one.outcome.weights.size());
  for (size_t i = 0; i < one.outcome.weights.size(); ++i)
    ASSERT_NEAR(ranks[0].outcome.weights[i], one.outcome.weights[i], tolerance) << i;
}

Problem slowly(Problem problem) {
  problem.learning_rate = 0.01f;
  return problem;
}

TEST(TensorParallel, AnMlpIsThatOfOneDevice) {
  const Result one = whole(mlp(), 20);
  for (const MeshShape& mesh : {MeshShape{1, 1, 2}, MeshShape{1, 1, 3}, MeshShape{2, 1, 2}}) {
    const auto ranks = together(mlp(), 20, mesh);
    EXPECT_EQ(ranks[0].slices, 5u) << "of two blocks, one without an inner bias: 3 + 2";
    expect_same_result(ranks, one, 2e-4);
  }
}

// Not with Adam: the gradient of the bias of keys is nothing but rounding errors, of which Adam
// would make full steps.
TEST(TensorParallel, ATransformerIsThatOfOneDevice) {
  const auto ranks = together(transformer(), 8, {1, 1, 2});
  for (const graph::SplitLayer& layer : ranks[0].layers)
    EXPECT_EQ(layer.how == "whole", !layer.why.empty()) << layer.label;
  expect_same_result(ranks, whole(transformer(), 8), 2e-4);
}

// Optimizers that need the norm of all gradients or the norms of whole tensors. The norm of a slice
// is far from that of the whole tensor, so with a wrong norm every step would differ.
class NormsOfSlices : public testing::TestWithParam<const char*> {
 protected:
  static void compare(const Problem& problem, uint32_t steps, const MeshShape& mesh,
                      double tolerance) {
    SCOPED_TRACE(problem.name);
    const Problem own = with(problem, GetParam());
    expect_same_result(together(own, steps, mesh), whole(own, steps), tolerance);
  }
};

TEST_P(NormsOfSlices, AreThoseOfOneDevice) { compare(mlp(), 8, {2, 1, 2}, 2e-4); }

// Run by tests/night.sh. These optimizers give the step of each tensor a length of its own, which
// makes training chaotic: at the usual learning rate, rounding errors grow tenfold in five to ten
// steps.
TEST_P(NormsOfSlices, DISABLED_AreThoseOfOneDeviceForLong) {
  for (const MeshShape& mesh : {MeshShape{1, 1, 2}, MeshShape{1, 1, 3}, MeshShape{2, 1, 2}}) {
    compare(slowly(mlp()), 100, mesh, 5e-3);
    compare(slowly(transformer()), 40, mesh, 5e-3);
  }
}

constexpr const char* kClipped = R"({"optimizer": "sgd", "momentum": 0.9, "clip_norm": 0.1})";

INSTANTIATE_TEST_SUITE_P(
    TensorParallel, NormsOfSlices,
    testing::Values(
        kClipped, R"({"optimizer": "lars", "trust_coefficient": 0.05, "weight_decay": 0.001})",
        R"({"optimizer": "lamb", "epsilon": 0.1, "clip_norm": 0.5})",
        R"({"optimizer": "lars", "trust_coefficient": 0.05, "accumulate": 2, "clip_norm": 0.1})"));

TEST(TensorParallel, ClippingForSixtyStepsIsThatOfOneDevice) {
  for (const Problem& problem : {with(mlp(), kClipped), with(transformer(), kClipped)})
    expect_same_result(together(problem, 60, {1, 1, 2}), whole(problem, 60), 1e-3);
}

// Run by tests/night.sh.
TEST(TensorParallel, DISABLED_AHundredStepsAreThoseOfOneDevice) {
  for (const Problem& problem : {mlp(), transformer()}) {
    const Result one = whole(problem, 100);
    for (const MeshShape& mesh : {MeshShape{1, 1, 2}, MeshShape{1, 1, 3}, MeshShape{2, 1, 2}})
      expect_same_result(together(problem, 100, mesh), one, 5e-3);
  }
}

TEST(TensorParallel, ARankThatIsLostEndsTheStep) {
  std::vector<Group> slices = exchange::local_groups(2, 30);
  const auto steps_of = [&](size_t rank, uint32_t steps, const std::function<void(Worker&)>& then) {
    const auto own = std::make_shared<gpu::Device>(device_options());
    DataParallel parallel(std::move(exchange::local_groups(1).front()), own, {},
                          std::make_unique<TensorParallel>(std::move(slices[rank]), own));
    Worker worker(mlp(), kRows, own, &parallel);
    for (uint32_t step = 0; step < steps; ++step) worker.step(step, 0, kRows);
    worker.wait();
    then(worker);
  };
  const auto leaver = std::async(std::launch::async, [&] { steps_of(1, 3, [](Worker&) {}); });
  steps_of(0, 3, [](Worker& worker) {
    worker.step(3, 0, kRows);
    try {
      worker.wait();
      ADD_FAILURE() << "no error";
    } catch (const exchange::RankLost& error) {
      EXPECT_EQ(error.missing(), std::vector{1}) << error.what();
    }
  });
}

TEST(TensorParallel, GradientsOfSeveralStepsAreOneUpdate) {
  const Problem problem = with(mlp(), R"({"optimizer": "sgd", "momentum": 0.9, "accumulate": 3})");
  expect_same_result(together(problem, 18, {2, 1, 2}), whole(problem, 18), 2e-4);
}

}  // namespace
}  // namespace etr::test
