// Plans device memory by lifetimes: buffers that are not in use at the same time share memory.
#pragma once

#include <vector>

#include "gpu/kernel.h"

namespace etr::graph {

// Hands out buffers without memory while commands are assembled. place() then derives from the
// complete list when each is in use, gives buffers that never overlap in time the same memory, and
// puts the real buffers into the commands.
class MemoryPlan final : public gpu::Allocator {
 public:
  explicit MemoryPlan(gpu::DevicePtr device) : device_(std::move(device)) {}

  // Throws Error(unsupported) beyond the device's largest tensor.
  gpu::Buffer allocate(uint64_t size_bytes) override;

  // Declare that the buffer is written before the first command (what the host uploads), or read
  // after the last.
  void written_before(const gpu::Buffer& buffer);
  void read_after(const gpu::Buffer& buffer);

  // Return whether the buffer is the whole of a buffer that was handed out, and whether it is
  // written before the commands or read after them.
  bool is_whole(const gpu::Buffer& buffer) const;
  bool is_kept(const gpu::Buffer& buffer) const;

  // Merges buffers where a copy between them is not needed, and drops the copy. place() does it
  // too.
  void join_copies(gpu::CommandList& commands);

  // Calls join_copies() and places the buffers in `arena`. Throws Error(out_of_memory).
  void place(gpu::CommandList& commands, gpu::Arena& arena);

  // After place(): returns the real buffer of one that was handed out, or of a slice of it; empty
  // if no command uses it.
  gpu::Buffer real(const gpu::Buffer& buffer) const;

  uint64_t asked_bytes() const;  // total size of all buffers without sharing

 private:
  struct Block {
    uint64_t size = 0;
    int64_t first = kNever, last = -1;  // first and last command that use it
    bool kept_before = false, kept_after = false;
    uint32_t same_as = 0;  // above 0: number of the block that it was merged into
    gpu::Buffer real;
  };
  static constexpr int64_t kNever = INT64_MAX;

  Block& block_of(uint32_t planned);
  const Block& block_of(uint32_t planned) const;
  void find_lifetimes(const gpu::CommandList& commands);

  gpu::DevicePtr device_;
  std::vector<Block> blocks_;
};

}  // namespace etr::graph
