// Runs commands once, for set-up work and tests.
#pragma once

#include "gpu/kernel.h"

namespace etr::gpu {

// Records, submits and waits. Compares kernels with the host if the device asks for it.
void run_once(const DevicePtr& device, const CommandList& commands);

}  // namespace etr::gpu
