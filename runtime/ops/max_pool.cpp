// Maximum over windows of [N, H, W, C].
#include "ops/pooling.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};
constexpr OptionSpec kOptions[] = {
    kWindow,
    kWindowStride,
    {"pad", OptionType::integer, "0", "border on each side that never wins", 0, 32, "pixels"},
};

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const Shape y = pooled_shape("max_pool", options, in[0]);
  return {y, {y}};  // the winning tap of each output
}

void forward(const OpCall& call, Emitter& emit) {
  const PoolGeometry push = pool_geometry(call);
  emit.for_channels("max_pool", {reads(call.inputs[0]), writes(call.output), writes(call.saved[0])},
                    push, push.c, push.oh, static_cast<uint32_t>(call.output.shape[0]));
}

void backward(const OpCall& call, Emitter& emit) {
  const PoolGeometry push = pool_geometry(call);
  const auto batch = static_cast<uint32_t>(call.output.shape[0]);
  const std::vector<gpu::Binding> bindings{reads(call.saved[0]), reads(call.output_grad),
                                           writes(call.input_grads[0])};
  const auto note = std::make_shared<MaxPoolGrad>(call.inputs[0].buffer, call.output.buffer);
  if (push.window > push.stride) {
    emit.for_channels("max_pool_grad", bindings, push, push.c, push.h, batch);
    emit.tell(note);
    return;
  }
  const auto covers = [&](uint32_t size, uint32_t outputs) {
    return push.window == push.stride && outputs * push.stride >= size + push.pad;
  };
  if (!covers(push.h, push.oh) || !covers(push.w, push.ow))
    emit.add(gpu::Fill{call.input_grads[0].buffer, 0});
  emit.for_channels("max_pool_grad_apart", bindings, push, push.c, push.oh, batch);
  emit.tell(note);
}

}  // namespace

extern const OpSpec max_pool_op;
const OpSpec max_pool_op{"max_pool", "maximum over windows", kInputs, kOptions, shapes, forward,
                         backward};

}  // namespace etr::ops
