// Measures which of several ways to compute the same is fastest.
#pragma once

#include <string>
#include <vector>

#include "gpu/kernel.h"

namespace etr::ops {

// Scratch memory for the ways that are measured. They run one after another, so all share it.
class WayMemory final : public gpu::Allocator {
 public:
  explicit WayMemory(const gpu::DevicePtr& device) : arena_(device, gpu::MemoryUse::device) {}

  void rewind();  // before each way
  gpu::Buffer allocate(uint64_t size_bytes) override;

 private:
  struct Block {
    gpu::Buffer buffer;
    bool taken = false;
  };

  gpu::Arena arena_;
  std::vector<Block> blocks_;
};

struct Way {
  std::string name;
  gpu::CommandList commands;
};

// Runs every way several times and returns the name of the fastest. The first is the default and is
// returned unless another is clearly faster. Waits for the device, for some tenths of a second.
// `ways` must not be empty.
std::string fastest_of(gpu::Kernels& kernels, const std::vector<Way>& ways);

// Returns the least time of each way in seconds, run in turns. Ways that take twice the best one's
// time are measured twice only.
std::vector<double> time_of_each(gpu::Kernels& kernels, const std::vector<Way>& ways);

}  // namespace etr::ops
