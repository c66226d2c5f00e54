// The device under test. Tests need one: without any Vulkan device they fail, they are not skipped.
#pragma once

#include <gtest/gtest.h>

#include "gpu/kernel.h"

namespace etr::test {

// Opened once per process and family. The environment chooses: ECHOTRAIN_TEST_DEVICE selects the
// device, ECHOTRAIN_TEST_VALIDATION=1 loads the validation layers; a test program then fails when
// they said anything. ECHOTRAIN_TEST_LOW_LIMITS=1 makes the device look like a poor one: 16 KB of shared memory, eight bindings
// of 128 MiB, no subgroups, no buffer addresses, no matrix units. ECHOTRAIN_TEST_COMPARE=1 compares what the device computes with
// what the host makes of the same kernels, which also tells their faults (spirv/machine.h).
gpu::DeviceOptions device_options(gpu::KernelFamily family = gpu::KernelFamily::automatic);
gpu::DevicePtr device(gpu::KernelFamily family = gpu::KernelFamily::automatic);
gpu::Kernels& kernels(gpu::KernelFamily family = gpu::KernelFamily::automatic);

// The families that this device can run.
std::vector<gpu::KernelFamily> families();

std::string family_name(gpu::KernelFamily family);

}  // namespace etr::test
