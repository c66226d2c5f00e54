// The device under test. Without a Vulkan device, tests fail; they are not skipped.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "gpu/kernel.h"

namespace etr::test {

// Opened once per process and family, as the environment says. ECHOTRAIN_TEST_DEVICE selects the
// device. ECHOTRAIN_TEST_VALIDATION=1 loads the validation layers, and the test program fails if
// they report anything. ECHOTRAIN_TEST_LOW_LIMITS=1 simulates a weak device: 16 KB of shared
// memory, nine bindings of 128 MiB, no subgroups, no buffer addresses, no matrix units.
// ECHOTRAIN_TEST_COMPARE=1 compares the device's results with the same kernels run on the host,
// which also reports faults in them (spirv/machine.h).
gpu::DeviceOptions device_options(gpu::KernelFamily family = gpu::KernelFamily::automatic);
gpu::DevicePtr device(gpu::KernelFamily family = gpu::KernelFamily::automatic);
gpu::Kernels& kernels(gpu::KernelFamily family = gpu::KernelFamily::automatic);

// Opens a device as the device under test was opened, but by this DeviceOptions::selector.
std::shared_ptr<gpu::Kernels> open_selected(const std::string& selector);

// Returns the families that this device can run.
std::vector<gpu::KernelFamily> families();

std::string family_name(gpu::KernelFamily family);

}  // namespace etr::test
