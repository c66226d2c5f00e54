// 16-bit floating-point numbers for sums. The conversions are branch-free, so compilers vectorize
// them.
#pragma once

#include <bit>
#include <cstdint>

namespace etr::exchange {

// Selects with masks: compilers move the arithmetic of a `?:` into its branches, and do not
// vectorize it.
constexpr uint32_t either(bool first, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - uint32_t{first};
  return (a & mask) | (b & ~mask);
}

// binary16: a significand of 11 bits; magnitudes from 6e-8 to 65504.
struct Float16 {
  uint16_t bits = 0;

  float value() const {
    const int32_t size = bits & 0x7FFF;  // signed, because vector comparisons are
    const uint32_t word = static_cast<uint32_t>(size) << 13,
                   sign = uint32_t{bits} << 16 & 0x80000000u;
    const uint32_t normal = word + 0x38000000u, beyond = word | 0x7F800000u;
    const uint32_t tiny = std::bit_cast<uint32_t>(static_cast<float>(size) * (1.0f / 16777216.0f));
    const uint32_t finite = either(size < 0x0400, tiny, normal);
    return std::bit_cast<float>(sign | either(size >= 0x7C00, beyond, finite));
  }

  // Rounds to nearest, ties to even; infinity from 65520 on.
  static Float16 of(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const uint32_t sign = word >> 16 & 0x8000u, size = word & 0x7FFFFFFFu;
    const auto order = static_cast<int32_t>(size);
    const uint32_t normal = (size - 0x38000000u + 0xFFFu + (size >> 13 & 1)) >> 13;
    // Below 2^-14 the spacing is 2^-24, as that of floats from 0.5 on.
    const uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3F000000u;
    const uint32_t beyond = either(order > 0x7F800000, 0x7E00u, 0x7C00u);
    const uint32_t finite = either(order < 0x38800000, tiny, normal);
    return {static_cast<uint16_t>(sign | either(order >= 0x477FF000, beyond, finite))};
  }
};

// bfloat16: a significand of 8 bits, and the range of float.
struct BFloat16 {
  uint16_t bits = 0;

  float value() const { return std::bit_cast<float>(uint32_t{bits} << 16); }

  static BFloat16 of(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (word + 0x7FFFu + (word >> 16 & 1)) >> 16;
    const bool is_nan = (word & 0x7FFFFFFFu) > 0x7F800000u;
    return {static_cast<uint16_t>(is_nan ? 0x7FC0u : rounded)};
  }
};

}  // namespace etr::exchange
