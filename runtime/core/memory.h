// Memory for samples and batches: made on one thread and freed on another, tens of thousands of times a second.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace etr {

// Uninitialised memory, 64-byte aligned. oneTBB's allocator recycles it; glibc's locks, and keeps heaps of threads that a few
// small blocks hold together: an image pipeline was a fifth slower by it, and took twice the memory. Of what is larger than
// kLargeBlock, megabytes of a few sizes, a block that is let go is kept for the next of its size: fresh memory costs a page
// fault for every 4 KB, more than filling it does. At most kKeptBlocks and kKeptBytes are kept in the process.
constexpr size_t kLargeBlock = size_t{2} << 20;
constexpr size_t kKeptBlocks = 8;
constexpr size_t kKeptBytes = size_t{256} << 20;

// AddressSanitizer sees only what is written beyond a block of its own, and ThreadSanitizer takes two uses of the same memory for
// one: there nothing is used again.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // GCC
constexpr bool kMemoryIsReused = false;
#elif defined(__has_feature)  // Clang
constexpr bool kMemoryIsReused = !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
constexpr bool kMemoryIsReused = true;
#endif

// Throws std::bad_alloc. Any thread.
std::shared_ptr<std::byte> allocate_bytes(size_t size_bytes);

// Where the memory comes from instead, 64-byte aligned; nullptr from `allocate` is std::bad_alloc. Any thread calls them.
struct Allocator {
  std::function<void*(size_t size_bytes, size_t alignment)> allocate;
  std::function<void(void* memory, size_t size_bytes)> release;
};

// From now on; nullptr: as above. A block goes back where it came from, and keeps its allocator until then. Process-wide.
void set_allocator(std::shared_ptr<const Allocator> allocator);

// From now on keeps at most so many bytes of large blocks, and lets the allocator of smaller ones give memory
// back to the system beyond `heap_bytes`; where that is less than before.
void limit_kept_memory(size_t most_bytes, size_t heap_bytes);

}  // namespace etr
