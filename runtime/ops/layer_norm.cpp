// Layer normalisation over the last axis; see shaders/layer_norm.comp for the formulas.
#include "core/error.h"
#include "ops/gemm.h"
#include "ops/onnx_node.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}, {"gamma"}, {"beta", InputRole::differentiable, true}};
constexpr OptionSpec kOptions[] = {
    {"epsilon", OptionType::number, "1e-5", "added to the variance", 1e-12, 1},
};

struct Push {
  uint32_t rows, c, slices, rms;
  float epsilon;
};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  if (in[0].size() < 2) fail(Code::invalid_argument, "layer_norm: x must have at least two axes");
  const int64_t c = in[0].back();
  for (size_t i = 1; i < in.size(); ++i)
    if (in[i] != Shape{c})
      fail(Code::invalid_argument, "layer_norm: ", kInputs[i].name, " is ", shape_text(in[i]),
           " but the last axis of x ", shape_text(in[0]), " is ", c);
  return {in[0], {{element_count(in[0]) / c, 2}}};  // mean and inverse deviation of each row
}

Push push_of(const OpCall& call, const Emitter& emit) {
  const auto c = static_cast<uint32_t>(call.output.shape.back());
  const uint32_t rows = call.output.count() / c;
  return {rows, c, tile_slices(*emit.device(), rows, c), call.inputs.size() < 3,
          static_cast<float>(call.options.number("epsilon"))};
}

void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call, emit);
  const DeviceTensor &gamma = call.inputs[1], &beta = push.rms ? gamma : call.inputs[2];
  emit.for_rows("layer_norm",
                {reads(call.inputs[0]), reads(gamma), reads(beta), writes(call.output),
                 writes(call.saved[0])},
                push, push.rows, push.c);
}

void backward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call, emit);
  const DeviceTensor &x = call.inputs[0], &dy = call.output_grad, &moments = call.saved[0];
  if (call.input_grads[0])
    emit.for_rows(
        "layer_norm_grad_x",
        {reads(x), reads(call.inputs[1]), reads(dy), reads(moments), writes(call.input_grads[0])},
        push, push.rows, push.c);
  const bool beta_wanted = !push.rms && call.input_grads[2];
  if (!call.input_grads[1] && !beta_wanted) return;
  const DeviceTensor partial = emit.scratch({push.slices, 2, push.c});
  const DeviceTensor sums = emit.scratch({2, push.c});  // dgamma, dbeta
  emit.for_tiles("layer_norm_grad_sums", {reads(x), reads(dy), reads(moments), writes(partial)},
                 push, push.c, push.slices, sum_tile(*emit.device(), push.c));
  emit_sum_halves(emit, partial, sums, push.slices, call.input_grads[1],
                  beta_wanted ? call.input_grads[2] : DeviceTensor{});
}

std::string to_onnx(OnnxNode& node) {
  const double epsilon = node.options().number("epsilon");
  if (node.inputs() > 2)
    return node.emit("LayerNormalization", {node.in(0), node.in(1), node.in(2)},
                     OnnxAttributes().integer("axis", -1).real("epsilon", epsilon));
  const OnnxName x = node.in(0);
  const OnnxName square = node.emit("ReduceMean", {node.emit("Mul", {x, x})},
                                    OnnxAttributes().integers("axes", {-1}).integer("keepdims", 1));
  return node.emit(
      "Mul",
      {node.emit("Div", {x, node.emit("Sqrt", {node.emit("Add", {square, node.number(epsilon)})})}),
       node.in(1)});
}

}  // namespace

extern const OpSpec layer_norm_op;
const OpSpec layer_norm_op{
    .name = "layer_norm",
    .doc = "layer normalisation; without beta that by the root mean square",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::rows,
};

}  // namespace etr::ops
