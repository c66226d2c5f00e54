#include "core/memory.h"

#include <oneapi/tbb/scalable_allocator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>

#include "core/error.h"
#include "core/platform.h"

namespace etr {
namespace {

struct Block {
  std::byte* memory;
  size_t size;
};

class KeptBlocks {
 public:
  std::byte* take(size_t size) {
    std::scoped_lock lock(mutex_);
    for (size_t i = count_; i-- > 0;) {  // newest first: it may still be cached
      if (blocks_[i].size != size) continue;
      std::byte* memory = blocks_[i].memory;
      std::copy(blocks_.begin() + i + 1, blocks_.begin() + count_, blocks_.begin() + i);
      --count_;
      bytes_ -= size;
      return memory;
    }
    return nullptr;
  }

  // Keeps the block, and frees the oldest ones if the limits are exceeded.
  void give(Block block) noexcept {
    Blocks old;
    size_t drop = 0;
    {
      std::scoped_lock lock(mutex_);
      blocks_[count_++] = block;
      bytes_ += block.size;
      for (; count_ - drop > kKeptBlocks || bytes_ > most_bytes_; ++drop)
        bytes_ -= blocks_[drop].size;
      std::copy_n(blocks_.begin(), drop, old.begin());
      std::copy(blocks_.begin() + drop, blocks_.begin() + count_, blocks_.begin());
      count_ -= drop;
    }
    for (size_t i = 0; i < drop; ++i)  // slow, so not under the lock
      platform::unmap_memory(old[i].memory, old[i].size);
  }

  void keep(size_t most_bytes) {
    std::scoped_lock lock(mutex_);
    most_bytes_ = std::min(most_bytes_, most_bytes);
  }

 private:
  using Blocks = std::array<Block, kKeptBlocks + 1>;

  std::mutex mutex_;
  Blocks blocks_{};  // oldest first
  size_t count_ = 0, bytes_ = 0, most_bytes_ = kKeptBytes;
};

// Never destroyed: blocks may be freed during process exit.
KeptBlocks& kept() {
  static auto& blocks = *new KeptBlocks;
  return blocks;
}

}  // namespace

void limit_kept_memory(size_t most_bytes, size_t heap_bytes) {
  kept().keep(most_bytes);
  static std::atomic<size_t> least{SIZE_MAX};
  size_t before = least.load();
  while (heap_bytes < before && !least.compare_exchange_weak(before, heap_bytes)) continue;
  scalable_allocation_mode(TBBMALLOC_SET_SOFT_HEAP_LIMIT, static_cast<intptr_t>(least.load()));
}

namespace {

std::shared_ptr<std::byte> allocate_large(size_t size_bytes) {
  constexpr size_t kPage = 4096;
  const size_t size = (size_bytes + kPage - 1) / kPage * kPage;
  std::byte* memory = kept().take(size);
  if (!memory) memory = platform::map_memory(size);
  if (!memory) throw std::bad_alloc();
  return {memory, [size](std::byte* p) { kept().give({p, size}); }};
}

constexpr size_t kAlignment = 64;

std::atomic<bool> has_allocator{false};  // so that the usual case takes no lock
std::mutex allocator_mutex;
std::shared_ptr<const Allocator> given_allocator;

std::shared_ptr<std::byte> allocate_by(std::shared_ptr<const Allocator> allocator, size_t size) {
  void* memory = allocator->allocate(size, kAlignment);
  if (!memory) throw std::bad_alloc();
  if (reinterpret_cast<uintptr_t>(memory) % kAlignment) {
    allocator->release(memory, size);
    fail(Code::callback, "the program's allocator returned memory that is not aligned to ",
         kAlignment, " bytes");
  }
  return {static_cast<std::byte*>(memory),
          [by = std::move(allocator), size](std::byte* p) { by->release(p, size); }};
}

}  // namespace

void set_allocator(std::shared_ptr<const Allocator> allocator) {
  std::scoped_lock lock(allocator_mutex);
  has_allocator = allocator != nullptr;
  given_allocator.swap(allocator);
}

std::shared_ptr<std::byte> allocate_bytes(size_t size_bytes) {
  if (has_allocator) {
    std::unique_lock lock(allocator_mutex);
    auto allocator = given_allocator;
    lock.unlock();
    if (allocator) return allocate_by(std::move(allocator), size_bytes);
  }
  if constexpr (!kMemoryIsReused) {
    constexpr std::align_val_t kAligned{kAlignment};
    return {static_cast<std::byte*>(::operator new(size_bytes, kAligned)),
            [](std::byte* p) { ::operator delete(p, kAligned); }};
  }
  if (size_bytes > kLargeBlock) return allocate_large(size_bytes);
  // One allocation holds the reference count followed by the padded, aligned bytes.
  const auto block = std::allocate_shared_for_overwrite<std::byte[]>(
      tbb::scalable_allocator<std::byte>(), size_bytes + kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(block.get());
  const size_t skip = (kAlignment - address % kAlignment) % kAlignment;
  return {block, block.get() + skip};
}

}  // namespace etr
