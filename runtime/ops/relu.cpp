// y = max(x, 0).
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};

OpShapes shapes(const Options&, const std::vector<Shape>& in) { return {in[0], {}}; }

void forward(const OpCall& call, Emitter& emit) {
  const uint32_t count = call.output.count();
  emit.for_each("relu", {reads(call.inputs[0]), writes(call.output)}, count, count);
}

void backward(const OpCall& call, Emitter& emit) {
  const uint32_t count = call.output.count();
  emit.for_each("relu_grad",
                {reads(call.output), reads(call.output_grad), writes(call.input_grads[0])}, count,
                count);
}

}  // namespace

extern const OpSpec relu_op;
const OpSpec relu_op{"relu", "max(x, 0)", kInputs, {}, shapes, forward, backward};

}  // namespace etr::ops
