// From whole numbers to normalised floats.
#pragma once

#include <cstdint>
#include <span>

namespace etr {

// out[i] = in[i] * scale[c] + shift[c], where c is i modulo the number of scales: the channel of the innermost axis, or one for
// all. `shift` has as many values, `out` as many as `in`. Results that are larger than a cache are written past it.
void normalize_u8(std::span<const uint8_t> in, std::span<const float> scale,
                  std::span<const float> shift, float* out);
void normalize_u16(std::span<const uint16_t> in, std::span<const float> scale,
                   std::span<const float> shift, float* out);

}  // namespace etr
