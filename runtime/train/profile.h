// Shows where a training step's time goes on the device.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "gpu/kernel.h"

namespace etr::train {

// The throughput that the device reached in kernels that only compute, or only move data.
struct Roof {
  double flops_per_s = 0, bytes_per_s = 0;
};
Roof measure_roof(gpu::Kernels& kernels);

// Runs the commands `runs` times, each command on its own, and takes the median time of each.
// Throws Error(unsupported) if the device has no timestamps. Returns
//   {"device", "seconds" (of a run), "roof": {"flops_per_s", "bytes_per_s"},
//    "ops": [{"op", "kernel", "calls", "seconds", "flops_per_s", "bytes_per_s", "of_roof"}, ...],
//    "traceEvents": [...] (one run as a Chrome trace)}
// with the longest ops first.
// `of_roof` is the larger of the shares of both roofs. Bytes count each tensor once.
Json profile_commands(gpu::Kernels& kernels, const gpu::CommandList& commands, int runs);

// Returns the profile as text.
std::string profile_text(const Json& profile);

}  // namespace etr::train
