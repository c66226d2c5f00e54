// A random permutation of the numbers 0 to n - 1 that needs no memory: each element is computed.
#pragma once

#include <cstdint>

#include "core/rng.h"

namespace etr::pipeline {

// A balanced Feistel network over the next power of four, applied repeatedly until the value is
// below n ("cycle walking", Black and Rogaway, CT-RSA 2002). The domain is smaller than 4 n, so a
// walk takes fewer than four applications on average. Immutable.
class Permutation {
 public:
  Permutation() = default;
  // N must be below 2^62.
  Permutation(uint64_t n, uint64_t key) : n_(n), key_(key), shuffles_(true) {
    while ((uint64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
  }
  // The identity permutation.
  static Permutation identity(uint64_t n) {
    Permutation out;
    out.n_ = n;
    return out;
  }

  uint64_t size() const { return n_; }

  // The number at position `index` < size().
  uint64_t operator[](uint64_t index) const {
    if (!shuffles_ || n_ < 2) return index;
    do index = encrypt(index);
    while (index >= n_);
    return index;
  }

 private:
  static constexpr int kRounds = 6;

  uint64_t encrypt(uint64_t value) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = value >> half_bits_, right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (mix64(right ^ mix64(key_ + round)) & mask);
      left = right;
      right = mixed;
    }
    return left << half_bits_ | right;
  }

  uint64_t n_ = 0, key_ = 0;
  unsigned half_bits_ = 1;
  bool shuffles_ = false;
};

}  // namespace etr::pipeline
