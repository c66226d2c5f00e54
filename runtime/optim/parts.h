// Building blocks of optimizers.
#pragma once

#include <bit>

#include "core/options.h"
#include "gpu/run_once.h"
#include "ops/op.h"

namespace etr::optim {

inline float number(const Options& options, const char* name) {
  return static_cast<float>(options.number(name));
}

// The least epsilon that keeps a root of 0 from being a divisor: with a gradient of 0 from the
// first step on, 0 / 0 would be NaN. Devices may take f32 numbers below 1.2e-38 for 0.
constexpr double kLeastEpsilon = 1e-37;

// Allocates state of `count` scalars, initially `value`.
inline ops::DeviceTensor make_state(const gpu::DevicePtr& device, gpu::Arena& arena, int64_t count,
                                    float value = 0) {
  const ops::DeviceTensor tensor{arena.allocate_whole(static_cast<uint64_t>(count) * 4), {count}};
  gpu::run_once(device, {gpu::Fill{tensor.buffer, std::bit_cast<uint32_t>(value)}});
  return tensor;
}

// Returns the number of invocations of a cheap grid-stride kernel over `count` scalars. A CPU
// device loads the step's values again in each lane, so there each lane updates several scalars.
inline uint32_t invocations_over(const gpu::Device& device, uint32_t count) {
  return device.info().kind == gpu::DeviceKind::cpu ? gpu::div_up(count, 16) : count;
}

}  // namespace etr::optim
