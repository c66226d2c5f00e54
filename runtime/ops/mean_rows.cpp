// Mean over the valid rows of a batch: [N] -> [1].
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  require_rank("mean_rows", "x", in[0], 1, "[N]");
  return {{1}, {}};
}

void forward(const OpCall& call, Emitter& emit) {
  emit.for_each("mean_rows",
                {reads(call.inputs[0]), writes(call.output), {call.step, gpu::Access::read}},
                call.inputs[0].count(), 1);
}

void backward(const OpCall& call, Emitter& emit) {
  emit.for_each(
      "mean_rows_grad",
      {reads(call.output_grad), writes(call.input_grads[0]), {call.step, gpu::Access::read}},
      call.inputs[0].count(), call.inputs[0].count());
}

}  // namespace

extern const OpSpec mean_rows_op;
const OpSpec mean_rows_op{"mean_rows", "mean over the valid rows", kInputs, {}, shapes, forward,
                          backward};

}  // namespace etr::ops
