// Half-precision numbers (IEEE 754 binary16): 1 sign, 5 exponent and 10 fraction bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace etr {

inline float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits} >> 15 << 31, exponent = bits >> 10 & 31,
                 fraction = bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                   : std::ldexp(static_cast<float>(1024 + fraction),
                                                static_cast<int>(exponent) - 25);
  return sign ? -size : size;
}

}  // namespace etr
