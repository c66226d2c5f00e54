#version 450
// y = x rounded to a shorter format, to the nearest and of two the even one; products of mixed precision take such
// operands. bfloat16: 8 bits of significand, float's range. float16: 11 bits, 6e-8 to 65504, infinite beyond.
// Bindings: 0 x, 1 y. Dispatch: grid-stride over count.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kFormat = 1;  // ops::Precision: 1 bfloat16, 2 float16
#define BUFFERS(B) B(0, Uints, x) B(1, Uints, y)
#define PARAMS uint count;
#include "interface.glsl"

uint to_bfloat16(uint bits) {
  if (!IS_FINITE(bits)) return bits;
  return (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u;
}

// By integers: the rounding of packHalf2x16 is the device's own affair.
uint to_float16(uint bits) {
  const uint sign = bits & 0x80000000u, size = bits & 0x7FFFFFFFu;
  if (!IS_FINITE(bits)) return bits;
  if (size >= 0x477FF000u) return sign | 0x7F800000u;  // 65520 and above
  if (size < 0x38800000u) {  // below 2^-14 the spacing is 2^-24
    const float steps = uintBitsToFloat(size) * 16777216.0;
    return sign | floatBitsToUint(roundEven(steps) / 16777216.0);
  }
  return sign | ((size + 0xFFFu + ((size >> 13) & 1u)) & 0xFFFFE000u);
}

void main() {
  FOR_EACH(i, count) y.v[i] = kFormat == 1 ? to_bfloat16(x.v[i]) : to_float16(x.v[i]);
}
