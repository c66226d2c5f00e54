// Device memory by lifetimes: what is not in use at the same time shares it.
#pragma once

#include <vector>

#include "gpu/kernel.h"

namespace etr::graph {

// Hands out buffers without memory while commands are put together; place() finds from the finished list when each
// is in use, gives those that never meet the same memory, and puts the real buffers into the commands.
class MemoryPlan final : public gpu::Allocator {
 public:
  explicit MemoryPlan(gpu::DevicePtr device) : device_(std::move(device)) {}

  // Throws Error(unsupported) beyond the device's largest bindable range.
  gpu::Buffer allocate(uint64_t size_bytes) override;

  // The buffer is written before the first command (what the host uploads) or read after the last.
  void written_before(const gpu::Buffer& buffer);
  void read_after(const gpu::Buffer& buffer);

  // Whether all of what was handed out is meant, and whether somebody looks at it who is not in the list of commands.
  bool is_whole(const gpu::Buffer& buffer) const;
  bool is_kept(const gpu::Buffer& buffer) const;

  // Drops copies between buffers that can be one; place() does it too.
  void join_copies(gpu::CommandList& commands);

  // Drops copies between buffers that can be one; places the rest in `arena`. Throws
  // Error(out_of_memory).
  void place(gpu::CommandList& commands, gpu::Arena& arena);

  // Behind place(): the real buffer of one that was handed out, or of a slice of it. Empty for one
  // that no command uses.
  gpu::Buffer real(const gpu::Buffer& buffer) const;

  uint64_t asked_bytes() const;  // of all buffers, had each its own memory

 private:
  struct Block {
    uint64_t size = 0;
    int64_t first = kNever, last = -1;  // commands between which it is in use
    bool kept_before = false, kept_after = false;
    uint32_t same_as = 0;  // above 0: the block that it became one with
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
