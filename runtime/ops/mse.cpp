// Per-row mean squared error against a target of the same shape.
#include "core/error.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}, {"target", InputRole::constant}};

struct Push {
  uint32_t rows, columns;
};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  require_rank("mse", "x", in[0], 2, "[N, columns]");
  if (in[0] != in[1])
    fail(Code::invalid_argument, "mse: x ", shape_text(in[0]), " and target ", shape_text(in[1]),
         " differ");
  return {{in[0][0]}, {}};
}

Push push_of(const OpCall& call) {
  const Shape& x = call.inputs[0].shape;
  return {static_cast<uint32_t>(x[0]), static_cast<uint32_t>(x[1])};
}

void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.for_each("mse", {reads(call.inputs[0]), reads(call.inputs[1]), writes(call.output)}, push,
                push.rows);
}

void backward(const OpCall& call, Emitter& emit) {
  emit.for_each("mse_grad",
                {reads(call.inputs[0]), reads(call.inputs[1]), reads(call.output_grad),
                 writes(call.input_grads[0])},
                push_of(call), call.inputs[0].count());
}

}  // namespace

extern const OpSpec mse_op;
const OpSpec mse_op{"mse", "mean squared error per row", kInputs, {}, shapes, forward, backward};

}  // namespace etr::ops
