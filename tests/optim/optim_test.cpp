#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/json.h"
#include "gpu/recording.h"
#include "nn/init.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "support/device.h"

namespace etr::test {
namespace {

struct SgdCase {
  double momentum;
  bool nesterov;
  double decay;
};

class Sgd : public testing::TestWithParam<SgdCase> {};

// Four steps with changing gradients, against the formulas in double; `b` is exempt from decay.
TEST_P(Sgd, MatchesTheFormulas) {
  const auto [momentum, nesterov, decay] = GetParam();
  graph::Graph g;
  g.add_parameter("w", {3, 5}, true, nn::constant(0.5f));
  g.add_parameter("b", {7}, false, nn::constant(-0.25f));
  graph::ParameterStore store(device(), g, 1);
  const auto& spec = optim::find_optimizer("sgd");
  const auto optimizer =
      spec.make(Options(spec.options, "sgd",
                        {{"momentum", momentum}, {"nesterov", nesterov}, {"weight_decay", decay}}),
                store);
  gpu::Arena arena(device(), gpu::MemoryUse::upload);
  const gpu::Buffer step = arena.allocate(sizeof(ops::StepValues));
  gpu::CommandList commands;
  ops::Emitter emit(kernels(), arena, commands);
  optimizer->emit(emit, step);
  ASSERT_EQ(commands.size(), 1u) << "one dispatch updates everything";
  struct State {
    double w, v;
  };
  State expected_w{0.5, 0}, expected_b{-0.25, 0};
  const auto update = [&](State& s, double g0, double lr, double wd) {
    const double gradient = g0 + wd * s.w;
    s.v = momentum * s.v + gradient;
    s.w -= lr * (momentum == 0 ? gradient : nesterov ? gradient + momentum * s.v : s.v);
  };
  for (int i = 0; i < 4; ++i) {
    const float gradient = 0.3f - 0.2f * static_cast<float>(i),
                lr = 0.1f / static_cast<float>(i + 1);
    for (const char* name : {"w", "b"}) {
      Tensor t(DType::f32, store.gradient(name).shape);
      for (float& v : t.mutable_view<float>()) v = gradient;
      graph::upload(device(), t, store.gradient(name));
    }
    ops::StepValues now;
    now.learning_rate = lr;
    std::memcpy(step.host, &now, sizeof now);
    gpu::run_once(device(), commands);
    update(expected_w, gradient, lr, decay);
    update(expected_b, gradient, lr, 0);
  }
  const auto values = store.download();
  for (const float v : values.at("w").view<float>()) EXPECT_NEAR(v, expected_w.w, 1e-6);
  for (const float v : values.at("b").view<float>()) EXPECT_NEAR(v, expected_b.w, 1e-6);
  const auto state = optimizer->download();
  optimizer->upload(state);
  EXPECT_THROW(optimizer->upload({{"velocity", Tensor(DType::f32, {2})}}), Error);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Sgd,
                         testing::Values(SgdCase{0, false, 0}, SgdCase{0, false, 0.1},
                                         SgdCase{0.9, false, 0}, SgdCase{0.9, true, 0},
                                         SgdCase{0.8, true, 0.05}));

TEST(SgdOptions, NesterovNeedsMomentum) {
  graph::Graph g;
  g.add_parameter("w", {3}, true, nn::constant(1));
  graph::ParameterStore store(device(), g, 1);
  const auto& spec = optim::find_optimizer("sgd");
  EXPECT_THROW(spec.make(Options(spec.options, "sgd", {{"nesterov", true}}), store), Error);
  EXPECT_THROW(optim::find_optimizer("sdg"), Error);
}

optim::Schedule schedule_of(const std::string& json, int64_t total = 0) {
  return optim::Schedule(Options(optim::schedule_schema(), "schedule", parse_json(json, "test")),
                         total);
}

TEST(Schedule, Kinds) {
  const auto constant = schedule_of(R"({"learning_rate": 2, "warmup_steps": 4})");
  EXPECT_FLOAT_EQ(constant.rate(0), 0.5f);
  EXPECT_FLOAT_EQ(constant.rate(3), 2);
  EXPECT_FLOAT_EQ(constant.rate(1000), 2);
  const auto step =
      schedule_of(R"({"schedule": "step", "learning_rate": 1, "step_every": 10, "gamma": 0.5})");
  EXPECT_FLOAT_EQ(step.rate(9), 1);
  EXPECT_FLOAT_EQ(step.rate(10), 0.5f);
  EXPECT_FLOAT_EQ(step.rate(35), 0.125f);
  const auto linear = schedule_of(
      R"({"schedule": "linear", "learning_rate": 1, "end_factor": 0.2, "warmup_steps": 10})", 110);
  EXPECT_FLOAT_EQ(linear.rate(10), 1);
  EXPECT_FLOAT_EQ(linear.rate(60), 0.6f);
  EXPECT_FLOAT_EQ(linear.rate(110), 0.2f);
  EXPECT_FLOAT_EQ(linear.rate(500), 0.2f) << "stays at the end";
  const auto cosine =
      schedule_of(R"({"schedule": "cosine", "learning_rate": 1, "decay_steps": 100})");
  EXPECT_FLOAT_EQ(cosine.rate(0), 1);
  EXPECT_NEAR(cosine.rate(50), 0.5, 1e-6);
  EXPECT_NEAR(cosine.rate(25), (1 + std::sqrt(0.5)) / 2, 1e-6);
  EXPECT_NEAR(cosine.rate(100), 0, 1e-6);
  EXPECT_THROW(schedule_of(R"({"schedule": "cosine", "learning_rate": 1})"), Error)
      << "it has no end";
}

}  // namespace
}  // namespace etr::test
