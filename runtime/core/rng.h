// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011).
//
// A draw is a pure function of (key, counter), so the same sample gets the same augmentation on any
// thread, in any order. Streams are named by what they are for: seed, epoch, sample, stage,
// replica.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace etr {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox4x32(PhiloxBlock ctr, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * ctr[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * ctr[2];
    ctr = {static_cast<uint32_t>(p1 >> 32) ^ ctr[1] ^ key[0], static_cast<uint32_t>(p1),
           static_cast<uint32_t>(p0 >> 32) ^ ctr[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return ctr;
}

// splitmix64 finaliser (Steele et al. 2014): spreads structured ids over 64 bits.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// A stream of draws for one purpose. Copyable, 32 bytes, no heap. Not thread safe: make one per
// use.
class Rng {
 public:
  // `a`, `b` and `c` name the stream inside the seed (epoch, sample, stage and replica, say).
  explicit constexpr Rng(uint64_t seed, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0)
      : key_(mix64(mix64(mix64(mix64(seed) ^ a) ^ b) ^ c)) {}

  constexpr uint32_t next_u32() {
    if (used_ == 4) {
      const auto lo = static_cast<uint32_t>(block_), hi = static_cast<uint32_t>(block_ >> 32);
      draws_ = philox4x32({lo, hi, 0, 0},
                          {static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32)});
      ++block_;
      used_ = 0;
    }
    return draws_[used_++];
  }

  // Uniform in [0, n), n >= 1. Lemire's multiply-shift; its bias is below n / 2^32.
  constexpr uint32_t below(uint32_t n) {
    return static_cast<uint32_t>((uint64_t{next_u32()} * n) >> 32);
  }

  // Uniform in [0, 1) with 24 random bits, exact in float.
  constexpr float uniform() { return static_cast<float>(next_u32() >> 8) * 0x1.0p-24f; }

  constexpr float uniform(float lo, float hi) { return lo + (hi - lo) * uniform(); }

  float normal();  // mean 0, variance 1 (Box–Muller); takes kDrawsOfNormal draws
  static constexpr uint64_t kDrawsOfNormal = 2;

  // Fills with normal values of mean 0.
  void fill_normal(std::span<float> out, float deviation) {
    for (float& value : out) value = deviation * normal();
  }

  // Skips `draws` 32-bit draws in constant time, so that the rows of a large array can be drawn
  // independently.
  constexpr void skip(uint64_t draws) {
    const uint64_t at = block_ * 4 + used_ - 4 + draws;
    block_ = at / 4;
    used_ = 4;
    for (uint64_t i = 0; i < at % 4; ++i) next_u32();
  }

 private:
  uint64_t key_;
  uint64_t block_ = 0;
  PhiloxBlock draws_{};
  unsigned used_ = 4;
};

// Shuffles `items` uniformly (Fisher-Yates, in Durstenfeld's form).
template <typename Items>
void shuffle(Items& items, Rng& rng) {
  for (size_t i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[rng.below(static_cast<uint32_t>(i))]);
}

}  // namespace etr
