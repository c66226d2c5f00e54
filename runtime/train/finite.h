// Finds where NaN or infinity first appears.
#pragma once

#include <string>
#include <vector>

#include "gpu/kernel.h"

namespace etr::train {

struct Named {
  std::string name;
  gpu::Buffer buffer;  // of floats
};

// Runs `input_commands`, checks `given`, then runs `commands` one by one and checks what each
// writes. Returns the name of the first buffer of `given` that is not finite, or the label and
// kernel of the first such command, or "" if all is finite. Waits for the device.
//
// Buffers that `commands` write are zeroed first, except those in `kept`, which they read and
// update: some kernels write only a part of a buffer, and the rest would still be NaN from the
// failed step. Kernels must not write integers that are NaN or infinity as floats.
std::string first_not_finite(gpu::Kernels& kernels, const gpu::CommandList& input_commands,
                             const std::vector<Named>& given, const std::vector<gpu::Buffer>& kept,
                             const gpu::CommandList& commands);

}  // namespace etr::train
