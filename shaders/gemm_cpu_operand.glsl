// Reads the operands of products on CPU devices, by address, and in pairs where possible (pair.glsl).
// The shader must define WIDTH and VEC (a lane's columns of B) first, and kPairs, the operands that
// are loaded in pairs: their rows have an even length and begin at multiples of 8 bytes.
//
// With 16 lanes, broadcasting a number takes two instructions from a register, but one from memory.
// So the operands of an iteration are loaded at the end of the one before and kept in memory in
// between (keep_in_memory() in the shaders). With 8 lanes, both take one.
#define LOADS_AHEAD (LANES == 16)

#define PAIRS_OF_A 1
#define PAIRS_OF_B 2  // if WIDTH is above 1

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };
#include "pair.glsl"

layout(push_constant) uniform Push {
  Floats a, b, side, residual, c;
  GemmParams p;
};

#ifdef PAIRS_ALONG_M
// The row of a tile that a lane has in a block. Since rows of A lie side by side, blocks alternate,
// so that a lane's rows are neighbours.
#define ROW_OF(blk, lane) ((blk) / 2 * 2 * LANES + 2 * (lane) + (blk) % 2)
#define LAST_ROW(blk) (p.m - 1 - ((kPairs & PAIRS_OF_A) != 0 && (blk) % 2 == 0 ? 1 : 0))
#else
#define ROW_OF(blk, lane) ((blk) * LANES + (lane))
#define LAST_ROW(blk) (p.m - 1)
#endif

// The last column at which a lane's columns of B may begin.
#define LAST_COLUMN (p.n - 1 - ((kPairs & PAIRS_OF_B) != 0 ? 1 : 0))

// Returns WIDTH columns of a row of B, the first of them at `at`. `last` is the distance from there
// to the row's last column. Columns beyond that repeat others; their results are not stored.
VEC load_b(uint at, uint last) {
#if WIDTH == 4
  if ((kPairs & PAIRS_OF_B) != 0) return vec4(pair(b, at), pair(b, last > 1 ? at + 2 : at));
  return vec4(b.v[at], b.v[at + min(1, last)], b.v[at + min(2, last)], b.v[at + min(3, last)]);
#elif WIDTH == 2
  if ((kPairs & PAIRS_OF_B) != 0) return pair(b, at);
  return vec2(b.v[at], b.v[at + min(1, last)]);
#else
  return b.v[at];
#endif
}
