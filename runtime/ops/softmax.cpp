// Softmax or log-softmax over the last axis.
#include "core/error.h"
#include "ops/onnx_node.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};
constexpr OptionSpec kOptions[] = {
    {"logarithm", OptionType::boolean, "false", "return the logarithm of the softmax"},
};

struct Push {
  uint32_t rows, length, logarithm;
};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  if (in[0].empty()) fail(Code::invalid_argument, "softmax: x has no axis");
  return {in[0], {}};
}

Push push_of(const OpCall& call) {
  const auto length = static_cast<uint32_t>(call.output.shape.back());
  return {call.output.count() / length, length, call.options.boolean("logarithm")};
}

void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.for_rows("softmax", {reads(call.inputs[0]), writes(call.output)}, push, push.rows,
                push.length);
}

void backward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.for_rows("softmax_grad",
                {reads(call.output), reads(call.output_grad), writes(call.input_grads[0])}, push,
                push.rows, push.length);
}

std::string to_onnx(OnnxNode& node) {
  return node.emit(node.options().boolean("logarithm") ? "LogSoftmax" : "Softmax", {node.in(0)},
                   OnnxAttributes().integer("axis", -1));
}

}  // namespace

extern const OpSpec softmax_op;
const OpSpec softmax_op{
    .name = "softmax",
    .doc = "softmax or log-softmax over the last axis",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::rows,
};

}  // namespace etr::ops
