// Allocates blocks of memory that a helper shares (helper.h). Blocks do not move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "core/platform_process.h"

namespace etr::exchange {

// Thread-safe.
class SharedPool {
 public:
  SharedPool() = default;
  ~SharedPool();  // frees the remaining blocks

  int descriptor() const { return memory_.descriptor(); }

  std::byte* take(uint64_t bytes);  // begins at a page; Error(out_of_memory)
  void give_back(void* piece);

  // Returns the offset of these bytes in the helper's mapping, if all of them lie in one block.
  std::optional<uint64_t> place(const void* data, uint64_t bytes) const;

 private:
  struct Piece {
    uint64_t begin, size;
  };

  uint64_t gap(uint64_t size) const;

  platform::SharedMemory memory_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Piece> pieces_;
};

}  // namespace etr::exchange
