// Where a training step's time goes on the device.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "gpu/kernel.h"

namespace etr::train {

// What the device reached in kernels that do nothing else.
struct Roof {
  double flops_per_s = 0, bytes_per_s = 0;
};
Roof measure_roof(gpu::Kernels& kernels);

// Runs the commands `runs` times, each command by itself, and takes the median time of each. Throws
// Error(unsupported) where the device has no timestamps. Gives
// {"device", "seconds" (of a run), "roof": {"flops_per_s", "bytes_per_s"}, "ops": [{"op", "kernel", "calls",
//  "seconds", "flops_per_s", "bytes_per_s", "of_roof"}, ...] (the longest first),
//  "traceEvents": [...] (one run as a Chrome trace)}.
// `of_roof` is the larger of the shares of both roofs; bytes are those of the tensors, each once.
Json profile_commands(gpu::Kernels& kernels, const gpu::CommandList& commands, int runs);

// The same for people.
std::string profile_text(const Json& profile);

}  // namespace etr::train
