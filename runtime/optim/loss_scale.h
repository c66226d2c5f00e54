// The scale of gradients that pass through float16 (Micikevicius et al. 2018). It is large enough
// that small gradients do not vanish. It is halved when one becomes infinite, and doubled after a
// number of steps without that.
#pragma once

#include "graph/parameters.h"

namespace etr::optim {

class LossScale {
 public:
  static constexpr float kFirst = 65536, kMost = 16777216, kLeast = 1.0f / 1024;
  static constexpr uint32_t kPatience = 2000;  // finite steps before it is doubled

  explicit LossScale(gpu::DevicePtr device, float first = kFirst);

  // f32 [1], the gradient with which the backward pass begins.
  gpu::Buffer scale() const { return state_.buffer.slice(0, 4); }

  // Emits a dispatch that must run before the step's gradients are checked. If the step ends an
  // update, it numbers the update, counting only the updates that were not skipped.
  void emit_number(ops::Emitter& emit, const gpu::Buffer& step_values) const;

  // Emits gradients /= scale over a range of them.
  void emit_unscale(ops::Emitter& emit, const gpu::Buffer& gradients, uint32_t count) const;

  // Emits the next step's scale at the end of a step, depending on whether the step's gradients
  // were finite. At the smallest scale StepValues::not_finite becomes StepValues::kHopeless. That,
  // or a loss that is not finite, sets `failed`.
  void emit_next(ops::Emitter& emit, const gpu::Buffer& loss, const ops::DeviceTensor& failed,
                 const gpu::Buffer& step_values) const;

  // The scale, the steps since it changed, and how many updates were left out: f32 [3], for
  // checkpoints.
  const ops::DeviceTensor& state() const { return state_; }

 private:
  gpu::Arena arena_;
  ops::DeviceTensor state_;
  gpu::Buffer ends_;  // whether the step ends an update
};

}  // namespace etr::optim
