// y[n, units] = x[n, features] * w[features, units] (+ b) (ReLU).
#include "core/error.h"
#include "ops/gemm.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}, {"w"}, {"b", InputRole::differentiable, true}};
constexpr OptionSpec kOptions[] = {
    {"relu", OptionType::boolean, "false", "apply ReLU to the result, fused into the product"},
};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  require_rank("dense", "x", in[0], 2, "[N, features]");
  require_rank("dense", "w", in[1], 2, "[features, units]");
  if (in[0][1] != in[1][0])
    fail(Code::invalid_argument, "dense: x ", shape_text(in[0]), " does not fit w ",
         shape_text(in[1]));
  return {{in[0][0], in[1][1]}, {}};
}

GemmParams product(int64_t m, int64_t n, int64_t k) {
  GemmParams p;
  p.m = static_cast<uint32_t>(m);
  p.n = static_cast<uint32_t>(n);
  p.k = static_cast<uint32_t>(k);
  return p;
}

void forward(const OpCall& call, Emitter& emit) {
  const Shape &x = call.inputs[0].shape, &w = call.inputs[1].shape;
  GemmParams p = product(x[0], w[1], x[1]);
  p.relu = call.options.boolean("relu");
  const DeviceTensor bias = call.inputs.size() > 2 ? call.inputs[2] : DeviceTensor{};
  emit_gemm(emit, GemmMode::nn, p, call.inputs[0], call.inputs[1], bias, call.output);
}

void backward(const OpCall& call, Emitter& emit) {
  const DeviceTensor &x = call.inputs[0], &w = call.inputs[1];
  const int64_t rows = x.shape[0], features = w.shape[0], units = w.shape[1];
  const DeviceTensor dy = call.options.boolean("relu")
                              ? emit_relu_grad(emit, call.output, call.output_grad)
                              : call.output_grad;
  if (call.input_grads[0]) {
    const DeviceTensor wt = emit.scratch({units, features});
    emit_transpose(emit, w, wt, 1, static_cast<uint32_t>(features), static_cast<uint32_t>(units));
    emit_gemm(emit, GemmMode::nn, product(rows, features, units), dy, wt, {}, call.input_grads[0]);
  }
  if (call.input_grads[1])
    emit_gemm(emit, GemmMode::tn, product(features, units, rows), x, dy, {}, call.input_grads[1]);
  if (call.input_grads.size() > 2 && call.input_grads[2])
    emit_column_sum(emit, dy, call.input_grads[2], static_cast<uint32_t>(rows),
                    static_cast<uint32_t>(units));
}

}  // namespace

extern const OpSpec dense_op;
const OpSpec dense_op{
    "dense", "matrix product with optional bias and ReLU", kInputs, kOptions, shapes, forward,
    backward};

}  // namespace etr::ops
