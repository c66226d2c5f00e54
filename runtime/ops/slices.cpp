// The two ends of a block that devices compute in slices (Shoeybi et al. 2019). On entry the value
// is whole on all devices, and its gradient is the sum of theirs. On exit the value is the sum of
// theirs, and its gradient is whole on all.
#include "core/error.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};

OpShapes shapes(const Options&, const std::vector<Shape>& in) { return {in[0], {}}; }

void emit_sum(Emitter& emit, const DeviceTensor& terms) {
  SlicePeers* peers = emit.peers().slices;
  if (!peers) fail(Code::internal, "a graph that was split is planned without its peers");
  peers->emit_sum(emit, terms.buffer);
}

void copy(const OpCall& call, Emitter& emit) {
  emit.add(gpu::Copy{call.inputs[0].buffer, call.output.buffer});
}

void copy_gradient(const OpCall& call, Emitter& emit) {
  emit.add(gpu::Copy{call.output_grad.buffer, call.input_grads[0].buffer});
}

void sum(const OpCall& call, Emitter& emit) {
  copy(call, emit);
  emit_sum(emit, call.output);
}

void sum_gradient(const OpCall& call, Emitter& emit) {
  copy_gradient(call, emit);
  emit_sum(emit, call.input_grads[0]);
}

}  // namespace

extern const OpSpec enter_slices_op, leave_slices_op;
const OpSpec enter_slices_op{
    .name = "enter_slices",
    .doc = "a value that devices go on with in slices",
    .inputs = kInputs,
    .shapes = shapes,
    .forward = copy,
    .backward = sum_gradient,
    .axes = AxesRule::elements,
};
const OpSpec leave_slices_op{
    .name = "leave_slices",
    .doc = "the sum of what devices have of a value",
    .inputs = kInputs,
    .shapes = shapes,
    .forward = sum,
    .backward = copy_gradient,
    .axes = AxesRule::elements,
};

}  // namespace etr::ops
