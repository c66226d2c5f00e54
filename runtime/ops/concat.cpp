// Joins two tensors along an axis. One with a single sample is joined to every sample of the other.
#include "core/error.h"
#include "ops/gemm.h"
#include "ops/onnx_node.h"
#include "ops/parts.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"a"}, {"b"}};
constexpr OptionSpec kOptions[] = {
    {"axis", OptionType::integer, "-1", "the axis; negative values count from the end", -8, 7},
};

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const size_t axis = axis_of("concat", options.integer("axis"), in[0]);
  Shape out = in[0];
  bool fits =
      in[1].size() == out.size() && (in[0][0] == in[1][0] || in[0][0] == 1 || in[1][0] == 1);
  for (size_t i = 1; fits && i < out.size(); ++i) fits = i == axis || in[1][i] == out[i];
  if (!fits)
    fail(Code::invalid_argument, "concat: ", shape_text(in[0]), " and ", shape_text(in[1]),
         " differ beside axis ", axis);
  out[0] = std::max(in[0][0], in[1][0]);
  out[axis] += in[1][axis];
  return {out, {}};
}

Part part_of(const OpCall& call, size_t input) {
  const Shape& a = call.inputs[0].shape;
  const size_t axis = axis_of("concat", call.options.integer("axis"), a);
  return {axis, input == 0 ? 0 : a[axis], call.inputs[input].shape[axis]};
}

void forward(const OpCall& call, Emitter& emit) {
  for (size_t i = 0; i < 2; ++i) emit_put_part(emit, call.inputs[i], part_of(call, i), call.output);
}

void backward(const OpCall& call, Emitter& emit) {
  for (size_t i = 0; i < 2; ++i) {
    const DeviceTensor& grad = call.input_grads[i];
    if (!grad) continue;
    const int64_t samples = call.output_grad.shape[0];
    if (grad.shape[0] == samples) {
      emit_take_part(emit, call.output_grad, part_of(call, i), grad);
      continue;
    }
    Shape whole = grad.shape;  // the gradients of every sample, to be summed
    whole[0] = samples;
    const DeviceTensor parts = emit.scratch(whole);
    emit_take_part(emit, call.output_grad, part_of(call, i), parts);
    emit_sum_slices(emit, parts, grad, static_cast<uint32_t>(samples), grad.count());
  }
}

// Returns the input, repeated for all samples if it has only one.
OnnxName each_sample(OnnxNode& node, size_t i) {
  const Shape shape = node.shape_in(i);
  if (shape[0] == node.shape()[0]) return node.in(i);
  const OnnxName count =
      node.emit("Gather", {node.emit("Shape", {node.in(1 - i)}), node.integers({0})},
                OnnxAttributes().integer("axis", 0));
  const OnnxName whole =
      node.emit("Concat", {count, node.integers({shape.begin() + 1, shape.end()})},
                OnnxAttributes().integer("axis", 0));
  return node.emit("Expand", {node.in(i), whole});
}

std::string to_onnx(OnnxNode& node) {
  return node.emit("Concat", {each_sample(node, 0), each_sample(node, 1)},
                   OnnxAttributes().integer("axis", node.options().integer("axis")));
}

}  // namespace

extern const OpSpec concat_op;
const OpSpec concat_op{
    .name = "concat",
    .doc = "two tensors joined along an axis",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::joined,
};

}  // namespace etr::ops
