// relu, bias, flatten, dropout.
#include <cmath>

#include "gpu/recording.h"
#include "graph/parameters.h"
#include "support/op_check.h"

namespace etr::test {
namespace {

TEST(Relu, MatchesTheReference) {
  check_op({.op = "relu", .inputs = {{13, 7}}, .reference = [](const auto& in) {
              Doubles y = in[0];
              for (double& v : y) v = std::max(v, 0.0);
              return y;
            }});
}

TEST(Bias, MatchesTheReference) {
  check_op({.op = "bias", .inputs = {{3, 5, 7, 11}, {11}}, .reference = [](const auto& in) {
              Doubles y = in[0];
              for (size_t i = 0; i < y.size(); ++i) y[i] += in[1][i % 11];
              return y;
            }});
}

TEST(Flatten, JoinsAllAxesButTheFirst) {
  const ops::OpSpec& op = ops::find_op("flatten");
  EXPECT_TRUE(op.view);
  EXPECT_EQ(op.shapes(Options(op.options, "flatten", nullptr), {{5, 3, 2, 7}}).output,
            (Shape{5, 42}));
}

TEST(Dropout, IsTheIdentityInEvaluation) {
  check_op({.op = "dropout",
            .options = R"({"rate": 0.9})",
            .inputs = {{17, 5}},
            .reference = [](const auto& in) { return in[0]; },
            .training = false});
}

// Forward and gradient on ones: the same mask, the right share, survivors scaled by 1 / (1 - rate).
TEST(Dropout, ZeroesTheRightShareAndKeepsTheMaskForTheGradient) {
  gpu::Kernels& k = kernels();
  gpu::Arena arena(k.device(), gpu::MemoryUse::device);
  gpu::CommandList commands;
  ops::Emitter emit(k, arena, commands);
  const ops::OpSpec& op = ops::find_op("dropout");
  const Options options(op.options, "dropout", parse_json(R"({"rate": 0.3})", "test"));
  constexpr int64_t kCount = 40009;
  Tensor ones(DType::f32, {kCount});
  for (float& v : ones.mutable_view<float>()) v = 1;
  const ops::DeviceTensor step = emit.scratch({8});
  Tensor step_values(DType::i32, {8});
  for (int32_t& v : step_values.mutable_view<int32_t>()) v = 5;
  graph::upload(k.device(), step_values, step);
  ops::OpCall call{options,
                   2,
                   true,
                   {emit.scratch({kCount})},
                   emit.scratch({kCount}),
                   {},
                   step.buffer,
                   emit.scratch({kCount}),
                   {emit.scratch({kCount})}};
  graph::upload(k.device(), ones, call.inputs[0]);
  graph::upload(k.device(), ones, call.output_grad);
  op.forward(call, emit);
  op.backward(call, emit);
  gpu::run_once(k.device(), commands);
  const Tensor y = graph::download(k.device(), call.output);
  const Tensor dx = graph::download(k.device(), call.input_grads[0]);
  int64_t kept = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const float v = y.view<float>()[i];
    ASSERT_TRUE(v == 0.0f || std::abs(v - 1 / 0.7f) < 1e-6f) << v;
    ASSERT_EQ(v, dx.view<float>()[i]);
    kept += v != 0;
  }
  EXPECT_NEAR(static_cast<double>(kept) / kCount, 0.7, 0.01);
}

}  // namespace
}  // namespace etr::test
