// Converts integers to normalised floats.
#pragma once

#include <cstdint>
#include <span>

namespace etr {

// out[i] = in[i] * scale[c] + shift[c], where c is i modulo the number of scales: the channel on
// the innermost axis, or 0 if one scale serves all. `shift` has the size of `scale`, `out` that of
// `in`. Results larger than a cache bypass it (non-temporal stores).
void normalize_u8(std::span<const uint8_t> in, std::span<const float> scale,
                  std::span<const float> shift, float* out);
void normalize_u16(std::span<const uint16_t> in, std::span<const float> scale,
                   std::span<const float> shift, float* out);

}  // namespace etr
