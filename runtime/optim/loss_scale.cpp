#include "optim/loss_scale.h"

namespace etr::optim {

LossScale::LossScale(gpu::DevicePtr device, float first)
    : arena_(device, gpu::MemoryUse::device), state_{arena_.allocate(8), {2}} {
  Tensor values(DType::f32, {2});
  values.mutable_view<float>()[0] = first;
  values.mutable_view<float>()[1] = 0;
  graph::upload(device, values, state_);
}

void LossScale::emit_unscale(ops::Emitter& emit, const gpu::Buffer& gradients,
                             uint32_t count) const {
  emit.for_each("loss_unscale",
                {{gradients, gpu::Access::read_write}, {scale(), gpu::Access::read}}, count, count);
}

void LossScale::emit_next(ops::Emitter& emit, const gpu::Buffer& loss,
                          const ops::DeviceTensor& failed, const gpu::Buffer& step_values) const {
  const struct { float patience, least, most; } push{kPatience, kLeast, kMost};
  emit.for_each("loss_scale_next",
                {ops::updates(state_),
                 {loss, gpu::Access::read},
                 ops::updates(failed),
                 {step_values, gpu::Access::read_write}},
                push, 1);
}

}  // namespace etr::optim
