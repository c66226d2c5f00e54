// Where NaN and infinity come from.
#pragma once

#include <string>
#include <vector>

#include "gpu/kernel.h"

namespace etr::train {

struct Named {
  std::string name;
  gpu::Buffer buffer;  // of floats
};

// Runs `feeding`, looks at `given`, then runs `commands` one by one and looks at what each writes. The name
// of the first that holds NaN or an infinity: one of `given`, or the label of a command with its kernel;
// "" where all is finite. Waits for the device.
std::string first_not_finite(gpu::Kernels& kernels, const gpu::CommandList& feeding,
                             const std::vector<Named>& given, const gpu::CommandList& commands);

}  // namespace etr::train
