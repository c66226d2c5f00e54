#include "support/op_check.h"

#include <algorithm>
#include <cmath>

#include "core/json.h"
#include "core/rng.h"
#include "gpu/run_once.h"
#include "graph/parameters.h"

namespace etr::test {
namespace {

Tensor to_tensor(const Doubles& values, const Shape& shape, bool labels) {
  Tensor out(labels ? DType::i32 : DType::f32, shape);
  for (size_t i = 0; i < values.size(); ++i)
    if (labels)
      out.mutable_view<int32_t>()[i] = static_cast<int32_t>(values[i]);
    else
      out.mutable_view<float>()[i] = static_cast<float>(values[i]);
  return out;
}

// Makes random values that are exact in float, so that host and device start from the same numbers.
Doubles random_values(int64_t count, Rng& rng, double low = -1, double high = 1) {
  Doubles out(static_cast<size_t>(count));
  for (double& v : out) v = rng.uniform(static_cast<float>(low), static_cast<float>(high));
  return out;
}

void expect_near(const Tensor& actual, const Doubles& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(static_cast<size_t>(actual.count()), expected.size()) << what;
  double scale = 1e-6;
  for (const double v : expected) scale = std::max(scale, std::abs(v));
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual.view<float>()[i], expected[i], tolerance * scale)
        << what << " at element " << i << " of " << shape_text(actual.shape());
}

Doubles numeric_gradient(const OpCase& c, std::vector<Doubles> inputs, size_t which,
                         const Doubles& upstream) {
  constexpr double kStep = 1e-6;
  const auto objective = [&] {
    const Doubles y = c.reference(inputs);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * upstream[i];
    return sum;
  };
  Doubles gradient(inputs[which].size());
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double x = inputs[which][i];
    inputs[which][i] = x + kStep;
    const double above = objective();
    inputs[which][i] = x - kStep;
    const double below = objective();
    inputs[which][i] = x;
    gradient[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

}  // namespace

double round_to(ops::Precision precision, double x) {
  if (precision == ops::Precision::fp32 || x == 0 || !std::isfinite(x)) return x;
  const bool half = precision == ops::Precision::fp16;
  // The exponent of the last bit: significands have 11 or 8 bits; it is fixed for subnormal
  // numbers.
  int exponent = std::ilogb(x) - (half ? 10 : 7);
  exponent = std::max(exponent, half ? -24 : -133);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
  return half && std::abs(rounded) > 65504 ? std::copysign(INFINITY, x) : rounded;
}

void check_op(const OpCase& c, gpu::Kernels& k) {
  SCOPED_TRACE(c.op + " " + c.options + " on the " + family_name(k.device()->family()) + " family");
  const ops::OpSpec& op = ops::find_op(c.op);
  const Options options(op.options, c.op, parse_json(c.options, c.op));
  const ops::OpShapes shapes = op.shapes(options, c.inputs);
  const gpu::DevicePtr dev = k.device();
  gpu::Arena arena(dev, gpu::MemoryUse::device);
  gpu::CommandList commands;
  ops::Emitter emit(k, arena, commands);
  emit.set_precision(c.precision);
  Rng rng(c.seed);

  ops::OpCall call{options, 3, c.training, {}, emit.scratch(shapes.output), {}, {}, {}, {}};
  std::vector<Doubles> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const bool labels = static_cast<int>(i) == c.label_input;
    Doubles values = random_values(element_count(c.inputs[i]), rng, c.low, c.high);
    if (labels)
      for (double& v : values) v = rng.below(static_cast<uint32_t>(c.classes));
    inputs.push_back(std::move(values));
  }
  if (c.adjust) c.adjust(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (double& v : inputs[i]) v = static_cast<double>(static_cast<float>(v));
    call.inputs.push_back(emit.scratch(c.inputs[i]));
    graph::upload(dev, to_tensor(inputs[i], c.inputs[i], static_cast<int>(i) == c.label_input),
                  call.inputs.back());
  }
  for (const Shape& shape : shapes.saved) call.saved.push_back(emit.scratch(shape));
  Doubles upstream = random_values(element_count(shapes.output), rng);
  call.output_grad = emit.scratch(shapes.output);
  graph::upload(dev, to_tensor(upstream, shapes.output, false), call.output_grad);
  constexpr int64_t kWords = sizeof(ops::StepValues) / sizeof(int32_t);
  Tensor step(DType::i32, {kWords});
  ops::StepValues values{7, c.valid_rows, 11, 13, 0.5f};
  values.label_smoothing = c.label_smoothing;
  std::memcpy(step.mutable_data(), &values, sizeof values);
  const ops::DeviceTensor step_tensor = emit.scratch({kWords});
  graph::upload(dev, step, step_tensor);
  call.step = step_tensor.buffer;

  op.forward(call, emit);
  for (size_t i = 0; i < c.inputs.size(); ++i)
    call.input_grads.push_back(c.gradient && op.inputs[i].role == ops::InputRole::differentiable
                                   ? emit.scratch(c.inputs[i])
                                   : ops::DeviceTensor{});
  if (c.gradient) op.backward(call, emit);
  gpu::run_once(dev, commands);

  for (Doubles& input : inputs)
    for (double& v : input) v = round_to(c.precision, v);
  for (double& v : upstream) v = round_to(c.precision, v);
  expect_near(graph::download(dev, call.output), c.reference(inputs), c.tolerance, "forward");
  std::vector<Doubles> gradients;
  if (c.gradients) gradients = c.gradients(inputs, upstream);
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (call.input_grads[i])
      expect_near(graph::download(dev, call.input_grads[i]),
                  c.gradients ? gradients[i] : numeric_gradient(c, inputs, i, upstream),
                  c.gradient_tolerance, std::string("gradient by ") + op.inputs[i].name);
}

void check_op(const OpCase& c, gpu::KernelFamily family) { check_op(c, kernels(family)); }

void check_op(const OpCase& c) {
  for (const gpu::KernelFamily family : families()) check_op(c, family);
}

}  // namespace etr::test
