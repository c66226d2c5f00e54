#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "gpu/run_once.h"
#include "graph/runner.h"
#include "nn/init.h"
#include "support/device.h"
#include "support/faults.h"

namespace etr::test {
namespace {

using namespace graph;

Initializer plain_ramp() {
  return [](std::span<float> out, Rng&) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = 0.1f * static_cast<float>(i % 7) - 0.25f;
  };
}

TEST(Graph, ErrorsNameTheLayerAndTheShapes) {
  Graph g;
  const ValueId x = g.add_input("x", {3, 5}, DType::f32);
  const ValueId w = g.add_parameter("w", {4, 2}, true, plain_ramp());
  try {
    g.add("dense", Json::object(), {x, w}, "layer 7");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "layer 7: dense: x [3, 5] does not fit w [4, 2]");
  }
  EXPECT_THROW(g.add("densee", Json::object(), {x, w}, "l"), Error);
  EXPECT_THROW(g.add("dense", Json::object(), {x}, "l"), Error);
  EXPECT_THROW(g.add_parameter("w", {1}, true, plain_ramp()), Error) << "the name is taken";
}

// Returns the gradient of the parameter w in a step on x = -2, -1, 0 ... with the target 0.
std::vector<float> gradient_of_w(const Graph& g, ValueId x, ValueId t, ValueId loss) {
  ParameterStore store(device(), g, 1);
  Plan plan(kernels(), g, store, {true, loss, {loss}});
  Tensor values(DType::f32, g.shape(x)), zeros(DType::f32, g.shape(t)),
      step(DType::i32, {sizeof(ops::StepValues) / 4});
  float next = -2;
  for (float& v : values.mutable_view<float>()) v = next++;
  for (float& v : zeros.mutable_view<float>()) v = 0;
  for (int32_t& v : step.mutable_view<int32_t>()) v = 3;  // valid_rows
  upload(device(), values, plan.tensor(x));
  upload(device(), zeros, plan.tensor(t));
  upload(device(), step, {plan.step_values(), step.shape()});
  gpu::run_once(device(), plan.commands());
  const Tensor out = download(device(), store.gradient("w"));
  return {out.view<float>().begin(), out.view<float>().end()};
}

// z = relu(x w) used twice: gradients of both uses must add up. loss = mean of rows of
// squared_error(z + z, 0), written as squared_error(dense(z, identity * 2)): compare with the same
// value made another way.
TEST(Plan, SumsTheGradientsOfAValueWithSeveralUsers) {
  // Two heads read one parameter: d(loss)/dw of "head a + head b" is the sum of those of each
  // alone.
  const auto gradient_of = [](bool a, bool b) {
    Graph g;
    const ValueId x = g.add_input("x", {3, 2}, DType::f32);
    const ValueId t = g.add_input("t", {3, 2}, DType::f32);
    const ValueId w = g.add_parameter("w", {2, 2}, true, plain_ramp());
    const ValueId y = g.add("dense", Json::object(), {x, w}, "shared");
    ValueId out = y;
    if (a && b) out = g.add("dense", Json::object(), {y, w}, "again");  // w is used by two nodes
    const ValueId rows = g.add("squared_error", Json::object(), {out, t}, "loss");
    const ValueId loss = g.add("mean_rows", Json::object(), {rows}, "loss");
    return gradient_of_w(g, x, t, loss);
  };
  const std::vector<float> actual = gradient_of(true, true);
  // By hand, in double: y = x w w, loss = mean over 6 elements of y^2.
  const auto loss_of = [](const double* w) {
    double sum = 0;
    for (int r = 0; r < 3; ++r) {
      const double x[2] = {2.0 * r - 2, 2.0 * r - 1};
      double h[2], y[2];
      for (int c = 0; c < 2; ++c) h[c] = x[0] * w[c] + x[1] * w[2 + c];
      for (int c = 0; c < 2; ++c) y[c] = h[0] * w[c] + h[1] * w[2 + c];
      sum += (y[0] * y[0] + y[1] * y[1]) / 6;
    }
    return sum;
  };
  double w[4];
  for (int i = 0; i < 4; ++i) w[i] = 0.1 * i - 0.25;
  for (size_t i = 0; i < 4; ++i) {
    const double at = w[i];
    w[i] = at + 1e-5;
    const double above = loss_of(w);
    w[i] = at - 1e-5;
    const double below = loss_of(w);
    w[i] = at;
    EXPECT_NEAR(actual[i], (above - below) / 2e-5, 1e-5) << i;
  }
}

// Nothing in front of it has a gradient, for which its values would be needed.
TEST(Plan, RecomputesNothingInFrontOfTheFirstTrainedLayer) {
  const auto computed_again = [](const std::vector<std::string>& frozen) {
    Graph g;
    const ValueId x = g.add_input("x", {3, 4}, DType::f32);
    const ValueId t = g.add_input("t", {3, 4}, DType::f32);
    ValueId y = x;
    for (int i = 0; i < 9; ++i) {
      const ValueId w = g.add_parameter(cat("w", i), {4, 4}, true, plain_ramp());
      y = g.add("dense", Json::object(), {y, w}, cat("layer ", i));
    }
    const ValueId rows = g.add("squared_error", Json::object(), {y, t}, "loss");
    const ValueId loss = g.add("mean_rows", Json::object(), {rows}, "loss");
    g.freeze(frozen);
    const ParameterStore store(device(), g, 1);
    PlanOptions options{true, loss, {loss}};
    options.recompute = true;
    const Plan plan(kernels(), g, store, options);
    std::set<std::string> labels;
    for (const gpu::Command& command : plan.commands())
      if (const auto* dispatch = std::get_if<gpu::Dispatch>(&command))
        if (dispatch->label.find("(again)") != std::string::npos) labels.insert(dispatch->label);
    return labels;
  };
  EXPECT_EQ(computed_again({"w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7"}),
            std::set<std::string>{});
  EXPECT_TRUE(computed_again({"w1"}).contains("layer 0 (again)"));
  const auto half = computed_again({"w0", "w1", "w2", "w3"});
  EXPECT_FALSE(half.contains("layer 0 (again)"));
  EXPECT_TRUE(half.contains("layer 4 (again)"));
}

// A parameter that is read as a view, once or twice, has the gradient of one that has that shape.
TEST(Plan, ViewsOfAParameterPassTheirGradientsOn) {
  const auto gradient_of = [](bool views, bool twice) {
    Graph g;
    const ValueId x = g.add_input("x", {3, 2, 2}, DType::f32);
    const ValueId t = g.add_input("t", {3, 4}, DType::f32);
    const ValueId w =
        g.add_parameter("w", views ? Shape{3, 4} : Shape{3, 2, 2}, true, plain_ramp());
    const auto seen = [&](const char* label) {
      return views ? g.add("reshape", {{"shape", {2, 2}}}, {w}, label) : w;
    };
    ValueId y = g.add("binary", {{"function", "multiply"}}, {x, seen("first")}, "product");
    if (twice) y = g.add("binary", {{"function", "add"}}, {y, seen("second")}, "sum");
    const ValueId flat = g.add("flatten", Json::object(), {y}, "flat");
    const ValueId rows = g.add("squared_error", Json::object(), {flat, t}, "loss");
    const ValueId loss = g.add("mean_rows", Json::object(), {rows}, "loss");
    return gradient_of_w(g, x, t, loss);
  };
  for (const bool twice : {false, true}) {
    const std::vector<float> direct = gradient_of(false, twice);
    EXPECT_NE(direct, std::vector<float>(12, 0));
    EXPECT_EQ(gradient_of(true, twice), direct) << twice;
  }
}

int dispatches_of(const gpu::CommandList& commands, const std::string& shader) {
  int count = 0;
  for (const gpu::Command& command : commands)
    if (const auto* dispatch = std::get_if<gpu::Dispatch>(&command))
      count += gpu::kernel_name(*dispatch->kernel) == shader;
  return count;
}

// Products with a normalisation after them: with bias and without, grouped, dense; and one whose
// result is read twice.
struct NormedGraph {
  ValueId norm(ValueId of, const std::string& name, bool relu) {
    const Shape c{g.shape(of).back()};
    const auto positive = [](std::span<float> out, Rng&) {
      for (size_t i = 0; i < out.size(); ++i) out[i] = 0.5f + 0.2f * static_cast<float>(i % 3);
    };
    return g.add(
        "batch_norm", {{"relu", relu}},
        {of, g.add_parameter(name + ".gamma", c, false, positive),
         g.add_parameter(name + ".beta", c, false, plain_ramp()),
         g.add_state(name + ".mean", c, plain_ramp()), g.add_state(name + ".var", c, positive)},
        name);
  }
  ValueId weight(const std::string& name, Shape shape) {
    return g.add_parameter(name, shape, true, plain_ramp());
  }
  NormedGraph() {
    x = g.add_input("x", {2, 5, 5, 4}, DType::f32);
    const ValueId a = norm(
        g.add("conv2d", {{"pad", 1}}, {x, weight("w1", {3, 3, 4, 8}), weight("b1", {8})}, "c1"),
        "n1", true);
    const ValueId b =
        norm(g.add("conv2d", {{"groups", 2}}, {a, weight("w2", {3, 3, 4, 8})}, "c2"), "n2", false);
    const ValueId twice = g.add("conv2d", Json::object(), {b, weight("w3", {1, 1, 8, 8})}, "c3");
    const ValueId sum = g.add("binary", {{"function", "add"}, {"relu", true}},
                              {norm(twice, "n3", false), twice}, "sum");
    const ValueId flat = g.add("flatten", Json::object(), {sum}, "flat");
    y = norm(g.add("dense", Json::object(), {flat, weight("w4", {72, 6})}, "d"), "n4", false);
  }
  Graph g;
  ValueId x, y;
};

TEST(Plan, NormalisationIsFoldedIntoTheWeightsBeforeIt) {
  for (const gpu::KernelFamily family : families()) {
    NormedGraph net;
    ParameterStore store(device(family), net.g, 1);
    PlanOptions options;
    options.outputs = {net.y};
    options.fuse = false;  // to count kernels
    const Plan plain(kernels(family), net.g, store, options);
    options.fold_norms = true;
    const Plan folded(kernels(family), net.g, store, options);
    EXPECT_EQ(dispatches_of(plain.commands(), "batch_norm_apply"), 4);
    EXPECT_EQ(dispatches_of(folded.commands(), "batch_norm_apply"), 1)
        << "the result that is read twice";
    EXPECT_EQ(dispatches_of(folded.preparation(), "fold_norm"), 3);
    const auto output_of = [&](const Plan& plan) {
      Tensor x(DType::f32, {2, 5, 5, 4});
      for (size_t i = 0; i < 200; ++i)
        x.mutable_view<float>()[i] = static_cast<float>(i % 11) * 0.2f - 1;
      upload(device(family), x, plan.tensor(net.x));
      if (!plan.preparation().empty()) gpu::run_once(device(family), plan.preparation());
      gpu::run_once(device(family), plan.commands());
      return download(device(family), plan.tensor(net.y));
    };
    for (int round = 0; round < 2; ++round) {
      const Tensor wanted = output_of(plain), got = output_of(folded);
      float largest = 0;
      for (const float v : wanted.view<float>()) largest = std::max(largest, std::abs(v));
      ASSERT_GT(largest, 0.1f);
      for (int64_t i = 0; i < wanted.count(); ++i)
        EXPECT_NEAR(got.view<float>()[static_cast<size_t>(i)],
                    wanted.view<float>()[static_cast<size_t>(i)], 1e-5f * largest);
      auto tensors = store.download();  // other weights: the preparation makes use of them
      for (auto& [name, tensor] : tensors) {
        tensor = std::move(tensor).writable();
        for (float& v : tensor.mutable_view<float>()) v *= 1.25f;
      }
      store.upload(tensors);
    }
  }
}

TEST(ParameterStore, RoundTripAndMistakes) {
  Graph g;
  g.add_parameter("a", {3, 5}, true, nn::he_normal(3));
  g.add_parameter("b", {7}, false, nn::constant(0.5f));
  g.add_state("s", {2}, nn::constant(1));
  ParameterStore store(device(), g, 9), other(device(), g, 10);
  EXPECT_EQ(store.trainable(), 22);
  EXPECT_LE(store.decayed(), store.count());
  auto values = store.download();
  EXPECT_EQ(values.at("b").view<float>()[6], 0.5f);
  EXPECT_NE(values.at("a").view<float>()[0], other.download().at("a").view<float>()[0])
      << "another seed";
  other.upload(values);
  EXPECT_EQ(values.at("a").view<float>()[14], other.download().at("a").view<float>()[14]);
  values["b"] = Tensor(DType::f32, {6});
  EXPECT_THROW(store.upload(values), Error);
  values.erase("b");
  EXPECT_THROW(store.upload(values), Error);
}

// Runs the mean of four numbers.
struct MeanRunner {
  MeanRunner(const gpu::DeviceOptions& options, int slots)
      : on(std::make_shared<gpu::Device>(options)),
        x(g.add_input("x", {4}, DType::f32)),
        mean(g.add("mean_rows", Json::object(), {x}, "mean")),
        store(on.device(), g, 1),
        plan(on, g, store, {false, -1, {mean}}),
        runner(on, plan, {graph::Feed(x)}, {mean}, {plan.commands()}, slots) {}

  void submit(float value, uint64_t tag) {
    std::fill_n(reinterpret_cast<float*>(runner.input(0)), 4, value);
    ops::StepValues values;
    values.valid_rows = 4;
    runner.submit(values, tag);
  }

  gpu::Kernels on;
  Graph g;
  ValueId x, mean;
  ParameterStore store;
  Plan plan;
  Runner runner;
};

class RunnerWith : public ::testing::TestWithParam<bool> {};

TEST_P(RunnerWith, ResultsComeInOrderWithSeveralStepsInFlight) {
  gpu::DeviceOptions options = device_options();
  options.lowered.uploads_apart = GetParam();
  MeanRunner made(options, 3);
  Runner& runner = made.runner;
  std::vector<StepResult> results;
  int most_in_flight = 0;
  for (uint64_t tag = 0; tag < 50; ++tag) {
    made.submit(static_cast<float>(tag), tag);
    most_in_flight = std::max(most_in_flight, runner.in_flight());
    if (tag % 5 == 4)
      for (StepResult& r : runner.take_results(false)) results.push_back(std::move(r));
  }
  for (StepResult& r : runner.take_results(true)) results.push_back(std::move(r));
  ASSERT_EQ(results.size(), 50u);
  for (uint64_t tag = 0; tag < 50; ++tag) {
    EXPECT_EQ(results[tag].tag, tag);
    EXPECT_EQ(results[tag].outputs[0][0], static_cast<float>(tag));
  }
  EXPECT_GE(most_in_flight, 2);
  EXPECT_EQ(made.on.device()->validation_messages(), 0);
}

TEST(Runner, WaitsForTheOldestStepAlone) {
  MeanRunner made(device_options(), 3);
  Runner& runner = made.runner;
  runner.wait_oldest();  // nothing is in flight
  for (uint64_t tag = 0; tag < 4; ++tag) made.submit(0, tag);
  EXPECT_EQ(runner.in_flight(), 3);
  runner.wait_oldest();
  EXPECT_EQ(runner.in_flight(), 2) << "the later ones were not waited for";
  const std::vector<StepResult> results = runner.take_results(false);
  ASSERT_GE(results.size(), 2u);
  EXPECT_EQ(results[1].tag, 1u);
}

TEST(Runner, KeepsItsCommandsIfTheyCannotBeRecordedAnew) {
  MeanRunner made(device_options(), 1);
  const auto result = [&] { return made.runner.take_results(true).at(0).outputs[0][0]; };
  made.submit(3, 0);
  EXPECT_EQ(result(), 3);
  ++made.on.device()->vk().kernels_replaced;
  {
    Faults faults(*made.on.device());
    faults.fail_at(1, VK_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_THROW(made.submit(4, 0), Error);
    EXPECT_EQ(faults.calls(), 1) << "it failed later than in recording";
  }
  EXPECT_EQ(made.runner.in_flight(), 0);
  made.submit(5, 0);
  EXPECT_EQ(result(), 5);
}

INSTANTIATE_TEST_SUITE_P(UploadsApart, RunnerWith, ::testing::Bool());

}  // namespace
}  // namespace etr::test
