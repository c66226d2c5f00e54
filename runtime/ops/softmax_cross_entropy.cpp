// Per-row softmax cross-entropy with integer labels and label smoothing.
#include "core/error.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"logits"}, {"labels", InputRole::constant}};
constexpr OptionSpec kOptions[] = {
    {"label_smoothing", OptionType::number, "0", "probability spread evenly over all classes", 0,
     0.99},
};

struct Push {
  uint32_t rows, classes;
  float smoothing;
};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  require_rank("softmax_cross_entropy", "logits", in[0], 2, "[N, classes]");
  if (in[1] != Shape{in[0][0]})
    fail(Code::invalid_argument, "softmax_cross_entropy: labels must be [", in[0][0], "], not ",
         shape_text(in[1]));
  return {{in[0][0]}, {}};
}

Push push_of(const OpCall& call) {
  const Shape& x = call.inputs[0].shape;
  return {static_cast<uint32_t>(x[0]), static_cast<uint32_t>(x[1]),
          static_cast<float>(call.options.number("label_smoothing"))};
}

void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.for_each("softmax_cross_entropy",
                {reads(call.inputs[0]), reads(call.inputs[1]), writes(call.output)}, push,
                push.rows);
}

void backward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.for_each("softmax_cross_entropy_grad",
                {reads(call.inputs[0]), reads(call.inputs[1]), reads(call.output_grad),
                 writes(call.input_grads[0])},
                push, push.rows);
}

}  // namespace

extern const OpSpec softmax_cross_entropy_op;
const OpSpec softmax_cross_entropy_op{"softmax_cross_entropy",
                                      "cross-entropy of softmax(logits) against integer labels",
                                      kInputs,
                                      kOptions,
                                      shapes,
                                      forward,
                                      backward};

}  // namespace etr::ops
