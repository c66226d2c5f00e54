// Memory that a helper sees (helper.h), in pieces that do not move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "core/platform_process.h"

namespace etr::exchange {

// Any thread.
class SharedPool {
 public:
  SharedPool() = default;
  ~SharedPool();  // with the pieces that are left

  int descriptor() const { return memory_.descriptor(); }

  std::byte* take(uint64_t bytes);  // begins at a page; Error(out_of_memory)
  void give_back(void* piece);

  // Where in the helper's view these bytes begin, if all of them lie in one piece.
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
