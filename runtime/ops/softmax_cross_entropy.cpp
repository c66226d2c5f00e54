// Per-row softmax cross-entropy with integer labels, label smoothing (StepValues::label_smoothing)
// and optional row weights.
#include "core/error.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"logits"},
                               {"labels", InputRole::constant, false, DType::i32},
                               {"weights", InputRole::constant, true}};

struct Push {
  uint32_t rows, classes, weighted;
};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  require_labels("softmax_cross_entropy", in);
  return {in[1], {}};
}

Push push_of(const OpCall& call) {
  const auto classes = static_cast<uint32_t>(call.inputs[0].shape.back());
  return {call.inputs[1].count(), classes, call.inputs.size() > 2};
}

const DeviceTensor& weights_of(const OpCall& call) {
  return call.inputs[call.inputs.size() > 2 ? 2 : 0];
}

void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.for_rows("softmax_cross_entropy",
                {reads(call.inputs[0]),
                 reads(call.inputs[1]),
                 reads(weights_of(call)),
                 writes(call.output),
                 {call.step, gpu::Access::read}},
                push, push.rows, push.classes);
}

void backward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.for_rows("softmax_cross_entropy_grad",
                {reads(call.inputs[0]),
                 reads(call.inputs[1]),
                 reads(weights_of(call)),
                 reads(call.output_grad),
                 writes(call.input_grads[0]),
                 {call.step, gpu::Access::read}},
                push, push.rows, push.classes);
}

}  // namespace

extern const OpSpec softmax_cross_entropy_op;
const OpSpec softmax_cross_entropy_op{
    .name = "softmax_cross_entropy",
    .doc = "cross-entropy of softmax(logits) against integer labels",
    .inputs = kInputs,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
};

}  // namespace etr::ops
