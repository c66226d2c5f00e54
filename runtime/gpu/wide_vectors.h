// The vectors that Mesa's lavapipe computes with.
#pragma once

#include "gpu/device.h"

namespace etr::gpu {

// Whether the device is a lavapipe that is faster with 512-bit vectors. Before Mesa 24 it is slower with them.
bool gains_by_wide_vectors(const DeviceInfo& device);

// Sets LP_NATIVE_VECTOR_WIDTH=512, unless it is set, where the processor has AVX-512 and there is a device that gains by it.
// Lists the devices to find out. Changes the process's environment: call it before there are other threads and before a device
// is opened.
void prefer_wide_cpu_vectors();

}  // namespace etr::gpu
