// Device memory: arenas of suballocated buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/device.h"

struct VkBuffer_T;  // the Vulkan handle; a pointer on every 64-bit platform

namespace etr::gpu {

// Where a buffer lives and who accesses it.
enum class MemoryUse {
  device,    // kernels only
  upload,    // written by the host, read by copies or kernels
  landing,   // on the device, the target of an Upload
  readback,  // written by the device, read by the host
};

// A range of a larger Vulkan buffer. A non-owning view: the Arena that allocated it owns the
// memory.
struct Buffer {
  VkBuffer_T* handle = nullptr;
  uint64_t offset = 0;  // bytes from the start of `handle`
  uint64_t size_bytes = 0;
  uint64_t address = 0;       // device address of the first byte; 0 without buffer addresses
  std::byte* host = nullptr;  // the host's mapping; nullptr for memory on the device
  uint32_t planned = 0;       // above 0: its number in a MemoryPlan that has yet to place it

  explicit operator bool() const { return handle != nullptr || planned != 0; }
  bool operator==(const Buffer&) const = default;
  Buffer slice(uint64_t begin, uint64_t bytes) const;
};

// Returns whether two buffers share bytes. Both must be placed, or both belong to a plan that has
// yet to place them.
constexpr bool overlap(const Buffer& a, const Buffer& b) {
  return a.handle == b.handle && a.planned == b.planned && a.offset < b.offset + b.size_bytes &&
         b.offset < a.offset + a.size_bytes;
}

class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual Buffer allocate(uint64_t size_bytes) = 0;
};

// Throws Error(unsupported) if a tensor of this size is too large for the device's kernels.
void check_bindable(const Device& device, uint64_t size_bytes);

// Supplies host pages that back an arena on a device that can import them.
class HostPages {
 public:
  virtual ~HostPages() = default;
  // Returns page-aligned memory that stays valid until this object is destroyed. Throws
  // Error(out_of_memory).
  virtual std::byte* take(uint64_t size_bytes) = 0;
};

// Grows by blocks and frees everything at once when it is destroyed: a graph's buffers are planned
// once and live as long as the graph. Not thread safe.
class Arena final : public Allocator {
 public:
  Arena(DevicePtr device, MemoryUse use);
  // For host-visible memory. On a CPU device its mapping is memory taken from `pages`, which must
  // outlive the arena. Other devices use their own memory, which is faster for them.
  Arena(DevicePtr device, MemoryUse use, HostPages& pages);
  ~Arena() override;
  Arena(Arena&&) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns a buffer that is aligned for binding. Throws Error(out_of_memory), or
  // Error(unsupported) beyond the device's largest tensor.
  Buffer allocate(uint64_t size_bytes) override;

  // Same without the limit on the size, for buffers that are bound in parts.
  Buffer allocate_whole(uint64_t size_bytes);

  uint64_t reserved_bytes() const;

 private:
  struct Block;

  DevicePtr device_;
  MemoryUse use_;
  HostPages* pages_ = nullptr;
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace etr::gpu
