// Inverted dropout: in training each element is kept with probability 1 - rate and scaled by
// 1 / (1 - rate); in evaluation y = x.
#include "ops/onnx_node.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};
constexpr OptionSpec kOptions[] = {
    {"rate", OptionType::number, "0.5", "probability that an element is set to zero", 0, 0.99},
    {"width", OptionType::integer, "0",
     "length of the last axis of the tensor that x is a slice of; 0: x is the whole tensor", 0,
     1e9},
    {"begin", OptionType::integer, "0", "start of the slice on that axis", 0, 1e9},
};

OpShapes shapes(const Options&, const std::vector<Shape>& in) { return {in[0], {}}; }

void apply(const OpCall& call, Emitter& emit, const DeviceTensor& from, const DeviceTensor& to) {
  if (!call.training) {
    emit.add(gpu::Copy{from.buffer, to.buffer});
    return;
  }
  const auto rate = static_cast<float>(call.options.number("rate"));
  if (const auto width = static_cast<uint32_t>(call.options.integer("width"))) {
    const struct {
      uint32_t count, layer;
      float rate;
      uint32_t width, begin, length;
    } push{to.count(),
           call.node,
           rate,
           width,
           static_cast<uint32_t>(call.options.integer("begin")),
           static_cast<uint32_t>(to.shape.back())};
    emit.for_each("dropout_slice", {reads(from), writes(to), {call.step, gpu::Access::read}}, push,
                  push.count);
    return;
  }
  const struct {
    uint32_t count, layer;
    float rate;
  } push{to.count(), call.node, rate};
  emit.for_each("dropout", {reads(from), writes(to), {call.step, gpu::Access::read}}, push,
                (push.count + 3) / 4);
}

void forward(const OpCall& call, Emitter& emit) { apply(call, emit, call.inputs[0], call.output); }
void backward(const OpCall& call, Emitter& emit) {
  apply(call, emit, call.output_grad, call.input_grads[0]);
}

std::string to_onnx(OnnxNode& node) {
  return node.in(0);  // in evaluation
}

}  // namespace

extern const OpSpec dropout_op;
const OpSpec dropout_op{
    .name = "dropout",
    .doc = "sets random elements to zero in training",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::elements,
    .slices = SliceRule::random_elements,
};

}  // namespace etr::ops
