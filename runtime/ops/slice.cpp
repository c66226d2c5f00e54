// A range of one axis.
#include "core/error.h"
#include "ops/onnx_node.h"
#include "ops/parts.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};
constexpr OptionSpec kOptions[] = {
    {"axis", OptionType::integer, "-1", "the axis; negative values count from the end", -8, 7},
    {"begin", OptionType::integer, "0", "first element; negative values count from the end", -1e9,
     1e9},
    {"length", OptionType::integer, "0", "number of elements; 0: all from 'begin' on", 0, 1e9},
};

Part part_of(const Options& options, const Shape& x) {
  const size_t axis = axis_of("slice", options.integer("axis"), x);
  int64_t begin = options.integer("begin");
  if (begin < 0) begin += x[axis];
  const int64_t asked = options.integer("length"), length = asked ? asked : x[axis] - begin;
  if (begin < 0 || length < 1 || begin + length > x[axis])
    fail(Code::invalid_argument, "slice: [", begin, ", ", begin + length, ") lies outside axis ",
         axis, " of x ", shape_text(x));
  return {axis, begin, length};
}

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const Part part = part_of(options, in[0]);
  Shape out = in[0];
  out[part.axis] = part.length;
  return {out, {}};
}

void forward(const OpCall& call, Emitter& emit) {
  emit_take_part(emit, call.inputs[0], part_of(call.options, call.inputs[0].shape), call.output);
}

void backward(const OpCall& call, Emitter& emit) {
  emit.add(gpu::Fill{call.input_grads[0].buffer, 0});
  emit_put_part(emit, call.output_grad, part_of(call.options, call.inputs[0].shape),
                call.input_grads[0]);
}

std::string to_onnx(OnnxNode& node) {
  const auto rank = static_cast<int64_t>(node.shape_in(0).size());
  int64_t axis = node.options().integer("axis");
  if (axis < 0) axis += rank;
  int64_t begin = node.options().integer("begin");
  if (begin < 0) begin += node.shape_in(0)[static_cast<size_t>(axis)];
  const int64_t length = node.shape()[static_cast<size_t>(axis)];
  return node.emit("Slice", {node.in(0), node.integers({begin}), node.integers({begin + length}),
                             node.integers({axis})});
}

}  // namespace

extern const OpSpec slice_op;
const OpSpec slice_op{
    .name = "slice",
    .doc = "a range of one axis",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::parts,
};

}  // namespace etr::ops
