// What optimizers are put together from.
#pragma once

#include <bit>
#include <cmath>

#include "core/options.h"
#include "gpu/recording.h"
#include "ops/op.h"

namespace etr::optim {

inline float number(const Options& options, const char* name) {
  return static_cast<float>(options.number(name));
}

// State of `count` scalars that begins as `value`.
inline ops::DeviceTensor make_state(const gpu::DevicePtr& device, gpu::Arena& arena, int64_t count,
                                    float value = 0) {
  const ops::DeviceTensor tensor{arena.allocate_whole(static_cast<uint64_t>(count) * 4), {count}};
  gpu::run_once(device, {gpu::Fill{tensor.buffer, std::bit_cast<uint32_t>(value)}});
  return tensor;
}

// The constants of running means, made in double: floats near 1 would lose 1 - beta and its
// logarithm.
struct Betas {
  Betas(double beta1, double beta2)
      : rest_a(static_cast<float>(1 - beta1)),
        rest_b(static_cast<float>(1 - beta2)),
        log_a(beta1 > 0 ? static_cast<float>(std::log(beta1)) : -1e30f),
        log_b(beta2 > 0 ? static_cast<float>(std::log(beta2)) : -1e30f) {}

  float rest_a, rest_b, log_a, log_b;
};

}  // namespace etr::optim
