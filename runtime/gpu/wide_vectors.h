// The vector width of Mesa's lavapipe.
#pragma once

#include "gpu/device.h"

namespace etr::gpu {

// Returns Mesa's major version if the device is its lavapipe, else 0.
int lavapipe_version(const DeviceInfo& device);

// Returns whether the device is a lavapipe that gains from 512-bit vectors: one of Mesa 25 or
// later. Mesa 22 is slower with them; 23 and 24 were not measured.
bool gains_by_wide_vectors(const DeviceInfo& device);

// Sets LP_NATIVE_VECTOR_WIDTH=512 in the environment if the processor has AVX-512, a device gains
// from it, and the variable is not set. Lists the devices to find out. Call it before other threads
// exist and before a device is opened.
void prefer_wide_cpu_vectors();

}  // namespace etr::gpu
