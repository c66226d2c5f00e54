// Rounds a float's bits to a shorter format, to nearest with ties to even. bfloat16: 8 bits of
// significand, float's range. float16: 11 bits, 6e-8 to 65504, infinite beyond.

// Returns a float with 16 zero bits at the end.
uint to_bfloat16(uint bits) {
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC00000u;  // NaN, which rounding may carry over
  return (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u;
}

// Uses integers, because how packHalf2x16 rounds depends on the device.
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
