// Losses that compare each element with a target of the same shape; a row's loss is their mean.
// Formulas in shaders/pointwise_loss.comp.
#include "core/error.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}, {"target", InputRole::constant}};
constexpr OptionSpec kHuber[] = {
    {"delta", OptionType::number, "1", "where the loss changes from quadratic to linear", 1e-6,
     1e6},
};

enum Kind : uint32_t { kSquared, kAbsolute, kHuberKind, kBinary };

struct Push {
  uint32_t rows, columns;
  float delta;
};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  if (in[0].size() < 2 || in[0] != in[1])
    fail(Code::invalid_argument, "the loss compares x ", shape_text(in[0]), " with a target ",
         shape_text(in[1]), "; both must be the same [N, ..., columns]");
  return {Shape(in[0].begin(), in[0].end() - 1), {}};
}

template <Kind kind>
Push push_of(const OpCall& call) {
  const auto columns = static_cast<uint32_t>(call.inputs[0].shape.back());
  float delta = 0;
  if constexpr (kind == kHuberKind) delta = static_cast<float>(call.options.number("delta"));
  return {call.inputs[0].count() / columns, columns, delta};
}

template <Kind kind>
void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of<kind>(call);
  emit.for_rows("pointwise_loss",
                {reads(call.inputs[0]), reads(call.inputs[1]), writes(call.output)}, push,
                push.rows, push.columns, {kind});
}

template <Kind kind>
void backward(const OpCall& call, Emitter& emit) {
  const Push push = push_of<kind>(call);
  emit.for_rows("pointwise_loss_grad",
                {reads(call.inputs[0]), reads(call.inputs[1]), reads(call.output_grad),
                 writes(call.input_grads[0])},
                push, push.rows, push.columns, {kind});
}

template <Kind kind>
constexpr OpSpec spec(const char* name, const char* doc, Schema options = {}) {
  return {name, doc, kInputs, options, shapes, forward<kind>, backward<kind>};
}

}  // namespace

extern const OpSpec squared_error_op, absolute_error_op, huber_op, binary_cross_entropy_op;
const OpSpec squared_error_op = spec<kSquared>("squared_error", "mean squared error per row");
const OpSpec absolute_error_op = spec<kAbsolute>("absolute_error", "mean absolute error per row");
const OpSpec huber_op = spec<kHuberKind>("huber", "Huber's loss per row", kHuber);
const OpSpec binary_cross_entropy_op = spec<kBinary>(
    "binary_cross_entropy", "cross-entropy of sigmoid(x) against targets in [0, 1], per row");

}  // namespace etr::ops
