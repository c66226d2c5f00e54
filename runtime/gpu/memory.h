// Device memory: arenas of suballocated buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/device.h"

struct VkBuffer_T;  // the Vulkan handle; a pointer on every 64-bit platform

namespace etr::gpu {

// Where a buffer lives and who touches it.
enum class MemoryUse {
  device,    // kernels only
  upload,    // written by the host, read by copies or kernels
  landing,   // on the device, where an Upload copies to
  readback,  // written by the device, read by the host
};

// A range of a larger Vulkan buffer. A plain view: the Arena that made it owns the memory.
struct Buffer {
  VkBuffer_T* handle = nullptr;
  uint64_t offset = 0;  // bytes from the start of `handle`
  uint64_t size_bytes = 0;
  uint64_t address = 0;       // device address of the first byte; 0 where there are none
  std::byte* host = nullptr;  // the host's mapping; nullptr for MemoryUse::device
  uint32_t planned = 0;       // above 0: its number in a plan that has yet to place it

  explicit operator bool() const { return handle != nullptr || planned != 0; }
  bool operator==(const Buffer&) const = default;
  Buffer slice(uint64_t begin, uint64_t bytes) const;
};

// Whether two share bytes that both have their place, or are of a plan that has yet to place them.
constexpr bool overlap(const Buffer& a, const Buffer& b) {
  return a.handle == b.handle && a.planned == b.planned && a.offset < b.offset + b.size_bytes &&
         b.offset < a.offset + a.size_bytes;
}

// Gives out buffers.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual Buffer allocate(uint64_t size_bytes) = 0;
};

// Throws Error(unsupported) beyond the largest tensor of the device's kernels.
void check_bindable(const Device& device, uint64_t size_bytes);

// Pages of the host's that an arena works on, where the device takes those as its own.
class HostPages {
 public:
  virtual ~HostPages() = default;
  // Stay until this object goes; begin at a page. Error(out_of_memory).
  virtual std::byte* take(uint64_t size_bytes) = 0;
};

// Grows by blocks and frees everything at once, when it is destroyed: a graph's buffers are planned
// once and live as long as the graph. Not thread safe.
class Arena final : public Allocator {
 public:
  Arena(DevicePtr device, MemoryUse use);
  // Of memory that the host sees: on a CPU device its mapping is `pages`, which outlive the arena. Other devices have
  // memory of their own, which is faster for them.
  Arena(DevicePtr device, MemoryUse use, HostPages& pages);
  ~Arena() override;
  Arena(Arena&&) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Aligned for binding. Throws Error(out_of_memory), or Error(unsupported) beyond the device's
  // largest bindable range.
  Buffer allocate(uint64_t size_bytes) override;

  // As many bytes as asked, to be bound in parts.
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
