// unary, binary, bias, flatten, dropout.
#include <cmath>
#include <cstring>

#include "core/error.h"

#include "gpu/run_once.h"
#include "graph/parameters.h"
#include "support/op_check.h"

namespace etr::test {
namespace {

// The element of a tensor of shape `from` that broadcasting puts at element i of shape `to`.
size_t place(const Shape& from, const Shape& to, size_t i) {
  size_t at = 0, stride = 1;
  for (size_t axis = to.size(); axis-- > 0;) {
    const auto extent = static_cast<size_t>(to[axis]);
    const size_t missing = to.size() - from.size();
    if (axis >= missing && from[axis - missing] != 1) {
      at += i % extent * stride;
      stride *= extent;
    }
    i /= extent;
  }
  return at;
}

struct Function {
  const char* name;
  std::function<double(double)> f;
  double low = -3, high = 3;
};

class Unary : public testing::TestWithParam<Function> {};

TEST_P(Unary, MatchesTheReference) {
  const Function& p = GetParam();
  check_op({.op = "unary",
            .options = cat("{\"function\": \"", p.name, "\", \"alpha\": 0.25}"),
            .inputs = {{13, 7}},
            .reference =
                [&](const auto& in) {
                  Doubles y = in[0];
                  for (double& v : y) v = p.f(v);
                  return y;
                },
            .low = p.low,
            .high = p.high});
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

INSTANTIATE_TEST_SUITE_P(
    Functions, Unary,
    testing::Values(
        Function{"relu", [](double x) { return std::max(x, 0.0); }},
        Function{"leaky_relu", [](double x) { return x > 0 ? x : 0.25 * x; }},
        Function{"elu", [](double x) { return x > 0 ? x : 0.25 * (std::exp(x) - 1); }},
        Function{"gelu", [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }},
        Function{"gelu_tanh",
                 [](double x) {
                   return 0.5 * x *
                          (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
                 }},
        Function{"silu", [](double x) { return x * sigmoid(x); }},
        Function{"sigmoid", sigmoid, -30, 30}, Function{"tanh", [](double x) { return std::tanh(x); }},
        Function{"softplus", [](double x) { return std::log1p(std::exp(x)); }},
        Function{"exp", [](double x) { return std::exp(x); }},
        Function{"log", [](double x) { return std::log(x); }, 0.1, 3},
        Function{"sqrt", [](double x) { return std::sqrt(x); }, 0.1, 3},
        Function{"square", [](double x) { return x * x; }},
        Function{"abs", [](double x) { return std::abs(x); }},
        Function{"negate", [](double x) { return -x; }}),
    [](const auto& row) { return row.param.name; });

struct Pair {
  const char* name;
  std::function<double(double, double)> f;
};

class Binary : public testing::TestWithParam<Pair> {};

// Every pattern of broadcasting: the same shape, a row, a column, a scalar, from both sides, ranks
// that differ, and more rows than a slice.
TEST_P(Binary, BroadcastsLikeNumPy) {
  const Pair& p = GetParam();
  const std::vector<std::pair<Shape, Shape>> shapes{
      {{13, 7}, {13, 7}}, {{3, 5, 7}, {7}},       {{3, 5, 7}, {5, 1}}, {{5, 7}, {1}},
      {{3, 1, 7}, {5, 1}}, {{2, 3, 5, 7}, {2, 1, 5, 1}}, {{1, 7}, {5, 7}},    {{331}, {331}}};
  for (const auto& [a, b] : shapes)
    check_op({.op = "binary",
              .options = cat("{\"function\": \"", p.name, "\"}"),
              .inputs = {a, b},
              .reference =
                  [&, a = a, b = b](const auto& in) {
                    const ops::OpSpec& op = ops::find_op("binary");
                    const Options options(op.options, "binary", {{"function", p.name}});
                    const Shape y = op.shapes(options, {a, b}).output;
                    Doubles out(static_cast<size_t>(element_count(y)));
                    for (size_t i = 0; i < out.size(); ++i)
                      out[i] = p.f(in[0][place(a, y, i)], in[1][place(b, y, i)]);
                    return out;
                  },
              .low = 0.5,
              .high = 2});
}

INSTANTIATE_TEST_SUITE_P(
    Functions, Binary,
    testing::Values(Pair{"add", [](double a, double b) { return a + b; }},
                    Pair{"subtract", [](double a, double b) { return a - b; }},
                    Pair{"multiply", [](double a, double b) { return a * b; }},
                    Pair{"divide", [](double a, double b) { return a / b; }},
                    Pair{"maximum", [](double a, double b) { return std::max(a, b); }},
                    Pair{"minimum", [](double a, double b) { return std::min(a, b); }}),
    [](const auto& row) { return row.param.name; });

TEST(BinaryOp, NamesTheShapesThatDoNotBroadcast) {
  const ops::OpSpec& op = ops::find_op("binary");
  try {
    op.shapes(Options(op.options, "binary", {{"function", "add"}}), {{3, 4}, {3}});
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "add: shapes [3, 4] and [3] do not broadcast: 4 against 3");
  }
}

// So many that the workgroups of a GPU take several parts each, of which the last is not full.
TEST(Elementwise, HasManyElements) {
  check_op({.op = "unary",
            .options = R"({"function": "square"})",
            .inputs = {{5, 67, 4}},
            .reference = [](const auto& in) {
              Doubles y = in[0];
              for (double& v : y) v *= v;
              return y;
            }});
  check_op({.op = "binary",
            .options = R"({"function": "subtract", "relu": true})",
            .inputs = {{5, 67, 4}, {5, 67, 4}},
            .reference = [](const auto& in) {
              Doubles y = in[0];
              for (size_t i = 0; i < y.size(); ++i) y[i] = std::max(y[i] - in[1][i], 0.0);
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
  constexpr int64_t kWords = sizeof(ops::StepValues) / sizeof(int32_t);
  const ops::DeviceTensor step = emit.scratch({kWords});
  Tensor step_values(DType::i32, {kWords});
  const ops::StepValues values{.step = 5, .seed_lo = 5, .seed_hi = 5};
  std::memcpy(step_values.mutable_data(), &values, sizeof values);
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
