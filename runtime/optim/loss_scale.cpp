#include "optim/loss_scale.h"

namespace etr::optim {

LossScale::LossScale(gpu::DevicePtr device, float first)
    : arena_(device, gpu::MemoryUse::device),
      state_{arena_.allocate(12), {3}},
      ends_(arena_.allocate(4)) {
  Tensor values(DType::f32, {3});
  const auto to = values.mutable_view<float>();
  to[0] = first;
  to[1] = to[2] = 0;
  graph::upload(device, values, state_);
}

void LossScale::emit_number(ops::Emitter& emit, const gpu::Buffer& step_values) const {
  emit.for_each(
      "loss_scale_number",
      {ops::reads(state_), {ends_, gpu::Access::write}, {step_values, gpu::Access::read_write}},
      uint32_t{1}, 1);
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
                 {ends_, gpu::Access::read},
                 {step_values, gpu::Access::read_write}},
                push, 1);
}

}  // namespace etr::optim
