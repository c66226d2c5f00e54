// Mean over the valid rows of a batch, optionally weighted: [N, ...] -> [1].
#include "core/error.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}, {"weights", InputRole::constant, true}};

struct Push {
  uint32_t rows, inner, weighted;
};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  if (in[0].empty()) fail(Code::invalid_argument, "mean_rows: x has no batch axis");
  if (in.size() > 1 && in[1] != in[0])
    fail(Code::invalid_argument, "mean_rows: weights ", shape_text(in[1]), " do not fit x ",
         shape_text(in[0]));
  return {{1}, {{2}}};  // the divisor of the sum, and the weight of the rows
}

Push push_of(const OpCall& call) {
  const DeviceTensor& x = call.inputs[0];
  const auto rows = static_cast<uint32_t>(x.shape[0]);
  return {rows, x.count() / rows, call.inputs.size() > 1};
}

// Emits the sum of losses divided by the sum of weights; the losses are already weighted.
void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.for_rows("mean_rows",
                {reads(call.inputs[0]),
                 reads(call.inputs[push.weighted]),
                 writes(call.output),
                 writes(call.saved[0]),
                 {call.step, gpu::Access::read}},
                push, 1, push.rows * push.inner, {}, 1);
}

void backward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.for_each("mean_rows_grad",
                {reads(call.output_grad),
                 reads(call.saved[0]),
                 writes(call.input_grads[0]),
                 {call.step, gpu::Access::read}},
                push, push.rows * push.inner);
}

}  // namespace

extern const OpSpec mean_rows_op;
const OpSpec mean_rows_op{
    .name = "mean_rows",
    .doc = "mean over the valid rows",
    .inputs = kInputs,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .is_mean_of_rows = true,
};

}  // namespace etr::ops
