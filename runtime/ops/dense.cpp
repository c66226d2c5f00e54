// y[..., units] = x[..., features] * w[features, units] (+ b) (ReLU); leading axes are rows.
#include "core/error.h"
#include "ops/gemm.h"
#include "ops/onnx_node.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}, {"w"}, {"b", InputRole::differentiable, true}};
constexpr OptionSpec kOptions[] = {
    {"relu", OptionType::boolean, "false", "apply ReLU to the result, fused into the product"},
    {"transposed", OptionType::boolean, "false",
     "w is [units, features], like the table of an embedding"},
};

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const bool transposed = options.boolean("transposed");
  if (in[0].size() < 2)
    fail(Code::invalid_argument, "dense: x must be [N, ..., features], not ", shape_text(in[0]));
  require_rank("dense", "w", in[1], 2, transposed ? "[units, features]" : "[features, units]");
  const int64_t features = in[1][transposed ? 1 : 0], units = in[1][transposed ? 0 : 1];
  if (in[0].back() != features)
    fail(Code::invalid_argument, "dense: x ", shape_text(in[0]), " does not fit w ",
         shape_text(in[1]));
  if (in.size() > 2 && in[2] != Shape{units})
    fail(Code::invalid_argument, "dense: b must be [", units, "], not ", shape_text(in[2]));
  Shape out = in[0];
  out[out.size() - 1] = units;
  return {out, {}};
}

struct Geometry {
  int64_t rows, features, units;
};

Geometry geometry(const OpCall& call) {
  const int64_t features = call.inputs[0].shape.back(), units = call.output.shape.back();
  return {element_count(call.output.shape) / units, features, units};
}

// Emits the transpose of w [rows, columns].
DeviceTensor transposed(Emitter& emit, const DeviceTensor& w, int64_t rows, int64_t columns) {
  const DeviceTensor out = emit.scratch({columns, rows});
  emit_transpose(emit, w, out, 1, static_cast<uint32_t>(rows), static_cast<uint32_t>(columns));
  return out;
}

void forward(const OpCall& call, Emitter& emit) {
  const auto [rows, features, units] = geometry(call);
  GemmParams p = product(rows, units, features);
  if (call.options.boolean("relu")) p.epilogue |= GemmParams::kRelu;
  const DeviceTensor& w = call.inputs[1];
  const DeviceTensor bias = call.inputs.size() > 2 ? call.inputs[2] : DeviceTensor{};
  emit_gemm(emit, GemmMode::nn, p, call.inputs[0],
            call.options.boolean("transposed") ? transposed(emit, w, units, features) : w, bias,
            call.output);
}

void backward(const OpCall& call, Emitter& emit) {
  const DeviceTensor &x = call.inputs[0], &w = call.inputs[1];
  const auto [rows, features, units] = geometry(call);
  const bool flipped = call.options.boolean("transposed");
  const DeviceTensor dy = emit_linear_grad(emit, call);
  if (call.input_grads[0]) {
    const DeviceTensor wt = flipped ? w : transposed(emit, w, features, units);
    emit_gemm(emit, GemmMode::nn, product(rows, features, units), dy, wt, {}, call.input_grads[0]);
  }
  if (call.input_grads[1] && flipped)
    emit_gemm(emit, GemmMode::tn, product(units, features, rows), dy, x, {}, call.input_grads[1]);
  else if (call.input_grads[1])
    emit_gemm(emit, GemmMode::tn, product(features, units, rows), x, dy, {}, call.input_grads[1]);
  if (call.input_grads.size() > 2 && call.input_grads[2])
    emit_column_sum(emit, dy, call.input_grads[2], static_cast<uint32_t>(rows),
                    static_cast<uint32_t>(units));
}

WeightLayout layout(const Options& options, size_t input) {
  return input == 1 && !options.boolean("transposed") ? WeightLayout::transposed
                                                      : WeightLayout::same;
}

bool quantizes(const Options& options, size_t input) {
  return input == 1 && !options.boolean("transposed");  // that of a tied product is also a table
}

bool folds(const Options& options) {
  return !options.boolean("transposed") && !options.boolean("relu");
}

std::string to_onnx(OnnxNode& node) {
  OnnxName w = node.in(1);
  if (node.options().boolean("transposed")) w = node.transpose(w, {1, 0});
  OnnxName y = node.emit("MatMul", {node.in(0), w});
  if (node.inputs() > 2) y = node.emit("Add", {y, node.in(2)});
  return node.relu_where(y);
}

}  // namespace

extern const OpSpec dense_op;
const OpSpec dense_op{
    .name = "dense",
    .doc = "matrix product with optional bias and ReLU",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .layout = layout,
    .quantizes = quantizes,
    .folds = folds,
    .axes = AxesRule::new_rows,
    .slices = SliceRule::product,
};

}  // namespace etr::ops
