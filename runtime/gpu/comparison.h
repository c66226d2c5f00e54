// Whether a device's driver computes a kernel as its SPIR-V says.
//
// The host runs workgroups of a dispatch itself (spirv/machine.h), on what the dispatch's buffers hold at that time, and
// compares what it writes with what the device writes into copies of them (gpu/judge.h).
#pragma once

#include "gpu/judge.h"
#include "gpu/kernel.h"

namespace etr::gpu {

// Which workgroups the host runs: the first, the last and one between them; or one after the other, as many as it
// can in some seconds.
enum class Scope { samples, all };

// Leaves the dispatch's buffers as they are. Errors of the device pass through.
Comparison compare(const DevicePtr& device, const Dispatch& dispatch, Scope scope);

// Whether one of these kernels has yet to be compared, as DeviceOptions::compare wants it.
bool wants_comparison(const Device& device, const CommandList& commands);

// Runs commands as a Recording does, once, and compares their kernels on the way. A kernel that the driver computes wrongly is
// compiled again without the driver's optimizer, with a line in the log; recordings that have the first one keep it. Throws
// Error(device) that names the kernel, the driver and a value where that does not help.
void run_compared(const DevicePtr& device, const CommandList& commands);

// Of this device's, since it was opened: recordings made at another count may have a wrong one.
uint32_t kernels_replaced(const Device& device);

}  // namespace etr::gpu
