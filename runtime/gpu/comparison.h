// Checks whether a device's driver executes a kernel as its SPIR-V specifies.
//
// The host interprets some workgroups of a dispatch (spirv/machine.h) on the current contents of
// the dispatch's buffers. It compares the words it writes with those that the device writes into
// copies of the buffers (gpu/judge.h).
#pragma once

#include "gpu/judge.h"
#include "gpu/kernel.h"

namespace etr::gpu {

// Which workgroups the host runs. `samples`: the first, the last and one in the middle. `all`: one
// after another, up to a limit of instructions that takes some seconds.
enum class Scope { samples, all };

// Compares one dispatch. Does not change its buffers. Passes on errors of the device and, where the
// host runs all workgroups, a fault of the kernel itself.
Comparison compare(const DevicePtr& device, const Dispatch& dispatch, Scope scope);

// Returns whether DeviceOptions::compare asks for a comparison of any of these kernels.
bool wants_comparison(const Device& device, const CommandList& commands);

// Runs the commands once, as a Recording does, and compares their kernels on the way. A kernel that
// the driver miscompiles is compiled again without the driver's optimizer, and a warning is logged;
// existing recordings keep the old pipeline. Throws Error(device), naming the kernel, the driver
// and a wrong value, if the recompiled kernel is wrong too.
void run_compared(const DevicePtr& device, const CommandList& commands);

// Returns how many kernels were recompiled since the device was opened. A recording that was made
// at a lower count may still use a miscompiled kernel.
uint32_t kernels_replaced(const Device& device);

}  // namespace etr::gpu
