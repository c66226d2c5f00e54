// Tells whether two arrays of one process share bytes. Engines that work on the caller's memory
// must not use such arrays as input and output.
#pragma once

#include <cstdint>

namespace etr::exchange {

inline bool overlap(const void* a, uint64_t a_bytes, const void* b, uint64_t b_bytes) {
  const auto from = reinterpret_cast<uintptr_t>(a), to = reinterpret_cast<uintptr_t>(b);
  return from < to + b_bytes && to < from + a_bytes;
}

}  // namespace etr::exchange
