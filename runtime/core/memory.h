// Memory for samples and batches. It is allocated on one thread and freed on another, tens of
// thousands of times a second.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace etr {

// Uninitialised memory, 64-byte aligned. oneTBB's allocator recycles small blocks. glibc's
// allocator takes locks, and a few small blocks keep whole per-thread heaps alive: with it an image
// pipeline was a fifth slower and took twice the memory. Blocks larger than kLargeBlock (megabytes,
// in a few sizes) are kept when they are freed and reused for requests of the same size, because
// fresh memory costs a page fault per 4 KB, which takes longer than filling it. The process keeps
// at most kKeptBlocks and kKeptBytes.
constexpr size_t kLargeBlock = size_t{2} << 20;
constexpr size_t kKeptBlocks = 8;
constexpr size_t kKeptBytes = size_t{256} << 20;

// No reuse under sanitizers: AddressSanitizer detects overruns only of blocks that it allocated
// itself, and ThreadSanitizer takes two uses of the same memory for one.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // GCC
constexpr bool kMemoryIsReused = false;
#elif defined(__has_feature)  // Clang
constexpr bool kMemoryIsReused =
    !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
constexpr bool kMemoryIsReused = true;
#endif

// Throws std::bad_alloc. Thread safe.
std::shared_ptr<std::byte> allocate_bytes(size_t size_bytes);

// A custom source of memory, 64-byte aligned. If `allocate` returns nullptr, std::bad_alloc is
// thrown. Both functions may be called on any thread.
struct Allocator {
  std::function<void*(size_t size_bytes, size_t alignment)> allocate;
  std::function<void(void* memory, size_t size_bytes)> release;
};

// Sets the allocator for later allocations; nullptr restores the default. A block is released to
// the allocator it came from and keeps that allocator alive until then. Process-wide.
void set_allocator(std::shared_ptr<const Allocator> allocator);

// Lowers the limit on kept large blocks to `most_bytes`, and the soft limit of the small-block
// allocator, beyond which it returns memory to the system, to `heap_bytes`. Never raises a limit.
void limit_kept_memory(size_t most_bytes, size_t heap_bytes);

}  // namespace etr
