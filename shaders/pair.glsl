// Two adjacent floats as one access by address; include it after Floats is declared. The driver of a
// CPU device turns every access into one per lane, which costs the same for 64 bits as for 32.
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Pairs { uint64_t v[]; };

// The numbers at `at`, which is even, and at + 1; the buffer lies at a multiple of 8 bytes.
vec2 pair(Floats of, uint at) { return uintBitsToFloat(unpack32(Pairs(of).v[at >> 1])); }

void store_pair(Floats to, uint at, vec2 value) {
  // Not by pack64(): with 16 lanes, Mesa 26.2 overwrites its own stack when it compiles that.
  const uvec2 bits = floatBitsToUint(value);
  Pairs(to).v[at >> 1] = uint64_t(bits.x) + (uint64_t(bits.y) << 32);
}
