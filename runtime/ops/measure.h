// Which of several ways to compute the same is fastest: tried, one after the other, several times.
#pragma once

#include <string>
#include <vector>

#include "gpu/kernel.h"

namespace etr::ops {

struct Way {
  std::string name;
  gpu::CommandList commands;
};

// The name of the fastest; of the first, the usual one, unless another is clearly faster. Waits for the device, for some
// tenths of a second. `ways` is not empty.
std::string fastest_of(gpu::Kernels& kernels, const std::vector<Way>& ways);

}  // namespace etr::ops
