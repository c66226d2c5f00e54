// Memory of batches: megabytes each, all of a few sizes, made and freed many times a second.
#pragma once

#include <cstddef>
#include <memory>

namespace etr {

// Uninitialised memory, aligned to a page. A block that is let go is kept for the next of its size: fresh
// memory costs a page fault for every 4 KB, more than filling it does. At most kKeptBlocks and kKeptBytes
// are kept in the process. Throws std::bad_alloc. Any thread.
constexpr size_t kKeptBlocks = 8;
constexpr size_t kKeptBytes = size_t{256} << 20;
std::shared_ptr<std::byte> allocate_large(size_t size_bytes);

// From now on keeps at most so many bytes of large blocks, and lets the allocator of smaller ones give memory
// back to the system beyond `heap_bytes`; where that is less than before.
void limit_kept_memory(size_t most_bytes, size_t heap_bytes);

}  // namespace etr
