#version 450
// Converts gradients for the wire between ranks (parallel/compression.h): 16-bit numbers, two to a
// word.
//   pack    v = g / (divisor ranks) + scale r;  q = v rounded, at most `most`;  r = (v - q) / scale
//           (0 g, 1 r, 2 wire, 3 divisor [1], 4 scale [1], 5 step values)
//           `most` is a number of the format, and the ranks' sum of so many is finite.
//           The rounding error is added to the next gradient (error feedback: Seide et al. 2014;
//           Karimireddy et al. 2019). If v is not finite, neither is q, and r stays. Without
//           feedback r is not used.
//   unpack  g = q                                                                      (0 wire, 1 g, 2 step values)
// Does nothing in steps that do not end an update.
// Dispatch: grid-stride over words, ceil(count / 2).
//! variant gradient_pack -DPACK
//! variant gradient_unpack
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kFormat = 1;  // parallel::Compression: 1 bfloat16, 2 float16
#ifdef PACK
#define BUFFERS(B) B(0, Floats, g) B(1, Floats, r) B(2, Uints, wire) B(3, Floats, divisor) B(4, Floats, scale) \
                   B(5, Steps, now)
#define PARAMS uint count, feedback; float ranks, most;
#else
#define BUFFERS(B) B(0, Uints, wire) B(1, Floats, g) B(2, Steps, now)
#define PARAMS uint count;
#endif
#include "interface.glsl"
#include "rounding.glsl"

#define BFLOAT16 1

#ifdef PACK
// Encodes a float that the format can represent.
uint shortened(uint bits) {
  if (kFormat == BFLOAT16) return bits >> 16;
  const uint sign = (bits >> 16) & 0x8000u, size = bits & 0x7FFFFFFFu;
  if (size >= 0x38800000u) return sign | ((size - 0x38000000u) >> 13);
  return sign | uint(uintBitsToFloat(size) * 16777216.0);
}

uint packed(uint i) {
  const float v = g.v[i] / (divisor.v[0] * ranks) + (feedback != 0 ? scale.v[0] * r.v[i] : 0.0);
  const uint bits = floatBitsToUint(v), sign = bits & 0x80000000u;
  if (!IS_FINITE(bits)) return kFormat == BFLOAT16 ? 0x7FC0u : 0x7E00u;
  uint rounded = kFormat == BFLOAT16 ? to_bfloat16(bits) : to_float16(bits);
  if ((rounded & 0x7FFFFFFFu) > floatBitsToUint(most)) rounded = sign | floatBitsToUint(most);
  if (feedback != 0) r.v[i] = (v - uintBitsToFloat(rounded)) / scale.v[0];
  return shortened(rounded);
}
#else
float lengthened(uint half_bits) {
  if (kFormat == BFLOAT16) return uintBitsToFloat(half_bits << 16);
  const uint sign = (half_bits & 0x8000u) << 16, size = half_bits & 0x7FFFu;
  if (size >= 0x7C00u) return NOT_A_NUMBER;  // either cancels the update
  if (size < 0x400u) {
    const float few = float(size) / 16777216.0;
    return sign != 0 ? -few : few;
  }
  return uintBitsToFloat(sign | ((size << 13) + 0x38000000u));
}
#endif

void main() {
  if (now.v[0].update == 0) return;
  FOR_EACH(word, (count + 1) / 2) {
    const uint i = 2 * word;
#ifdef PACK
    wire.v[word] = packed(i) | (i + 1 < count ? packed(i + 1) << 16 : 0);
#else
    const uint both = wire.v[word];
    g.v[i] = lengthened(both & 0xFFFFu);
    if (i + 1 < count) g.v[i + 1] = lengthened(both >> 16);
#endif
  }
}
