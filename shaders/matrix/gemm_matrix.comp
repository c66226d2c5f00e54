#version 450
// C[m, n] = A[m, k] * B[k, n] (+ bias[n]) (ReLU) on matrix units (VK_KHR_cooperative_matrix), with
// operands of 16 bits and sums of 32.
//
// Four subgroups compute a tile of C, two by two; each holds kRows x kColumns matrices of it. Tiles
// of A and B go through shared memory, rounded to 16 bits and two elements to a word, while the
// next tiles are loaded into registers. C goes through shared memory, too, because which elements
// of a matrix an invocation holds is known only there.
//
// PARTS 1: A and B are rounded, for products of mixed precision. PARTS 3: each float is the sum of
// three bfloat16, which together have all of its 24 bits. Six of the nine products of parts give C
// to the accuracy of float32; the other three are too small to matter.
//
// Bindings: 0 a, 1 b [k, n], 2 side, 3 residual, 4 c [slices, m, n]. Modes and epilogue:
// gemm_params.glsl.
// Dispatch: x = ceil(m / tile rows), y = ceil(n / tile columns), z = groups * slices of k.
//
//! variant gemm_matrix_bf16 -DFORMAT=1 -DPARTS=1
//! variant gemm_matrix_fp16 -DFORMAT=2 -DPARTS=1
//! variant gemm_matrix_bf16x3 -DFORMAT=1 -DPARTS=3
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#if FORMAT == 1
#extension GL_EXT_bfloat16 : require
#define ELEMENT bfloat16_t
#else
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define ELEMENT float16_t
#endif
#include "../finite.glsl"
#include "../gemm_params.glsl"
#include "../rounding.glsl"

layout(constant_id = 0) const uint kMode = 0;
layout(constant_id = 1) const uint kSpread = 0;  // 1: lines of C are not contiguous
layout(constant_id = 2) const uint M = 16;       // of a matrix of the device: [M, K] * [K, N]
layout(constant_id = 3) const uint N = 16;
layout(constant_id = 4) const uint K = 16;
layout(constant_id = 5) const uint kRows = 4;     // matrices of C in a subgroup
layout(constant_id = 6) const uint kColumns = 4;
layout(constant_id = 7) const uint kLanes = 128;  // of the workgroup: four subgroups
layout(constant_id = 8) const uint kJoins = 0;    // RESIDUAL, KEEP
layout(local_size_x_id = 7) in;

#define MODE kMode
#define DEPTH 32
#define TILE_ROWS (2 * M * kRows)
#define TILE_COLUMNS (2 * N * kColumns)
// In words of two elements, with padding so that rows begin in different banks.
#define A_STRIDE (DEPTH / 2 + 4)
#define B_STRIDE (TILE_COLUMNS / 2 + 4)
#define A_WORDS (TILE_ROWS * DEPTH / 2 / kLanes)  // that an invocation loads
#define B_WORDS (TILE_COLUMNS * DEPTH / 2 / kLanes)

layout(binding = 0, std430) readonly buffer A { float a[]; };
layout(binding = 1, std430) readonly buffer B { float b[]; };
layout(binding = 2, std430) readonly buffer Side { float side[]; };
layout(binding = 3, std430) readonly buffer Residual { float residual[]; };
layout(binding = 4, std430) writeonly buffer C { float c[]; };
layout(push_constant) uniform Push { GemmParams p; };
#include "../gemm_operand.glsl"

shared uint tile_a[PARTS * TILE_ROWS * A_STRIDE];
shared uint tile_b[PARTS * DEPTH * B_STRIDE];
shared float tile_c[4 * M * N];

vec2 next_a[A_WORDS], next_b[B_WORDS];

#define ALONG_K (MODE == MODE_NN || MODE == MODE_CONV || MODE == MODE_CONV_DX)
// Whether all of an invocation's words of A lie at one k.
#define SAME_K (ALONG_K && kLanes % (DEPTH / 2) == 0)

// Returns the row of an invocation's word w of a tile of A, and the first of its two k. Neighbours
// read neighbouring addresses.
uvec2 word_of_a(uint w) {
  const uint i = w * kLanes + gl_LocalInvocationIndex;
  return ALONG_K ? uvec2(i / (DEPTH / 2), (SAME_K ? gl_LocalInvocationIndex : i) % (DEPTH / 2) * 2)
                 : uvec2(i % TILE_ROWS, i / TILE_ROWS * 2);
}

ivec3 kept[A_WORDS];  // part_of_row() of their rows

void keep_rows(uint row0) {
  [[unroll]] for (uint w = 0; w < A_WORDS; ++w) kept[w] = part_of_row(row0 + word_of_a(w).x);
}

void fetch(uint column0, uint k0, uint end) {
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    const ivec3 first = part_of_k(k0 + word_of_a(0).y + i, end);
    [[unroll]] for (uint w = 0; w < A_WORDS; ++w)
      next_a[w][i] =
          element_of_a(kept[w], SAME_K ? first : part_of_k(k0 + word_of_a(w).y + i, end));
  }
  [[unroll]] for (uint w = 0; w < B_WORDS; ++w) {
    const uint word = w * kLanes + gl_LocalInvocationIndex;
    const uint k = k0 + word / (TILE_COLUMNS / 2), column = column0 + word % (TILE_COLUMNS / 2) * 2;
    const uint at = (k * p.groups + GROUP) * p.n + column;
    next_b[w].x = k < end && column < p.n ? b[at] : 0.0;
    next_b[w].y = k < end && column + 1 < p.n ? b[at + 1] : 0.0;
  }
}

// Returns two floats, rounded, as a word. Leaves the rounding errors in `rest`.
uint take_word(inout vec2 rest) {
#if FORMAT == 1
  const uvec2 bits = uvec2(to_bfloat16(floatBitsToUint(rest.x)), to_bfloat16(floatBitsToUint(rest.y)));
  rest -= uintBitsToFloat(bits);
  return bits.x >> 16 | bits.y;
#else
  const vec2 rounded =
      vec2(uintBitsToFloat(to_float16(floatBitsToUint(rest.x))), uintBitsToFloat(to_float16(floatBitsToUint(rest.y))));
  rest -= rounded;
  return packHalf2x16(rounded);
#endif
}

void place() {
  [[unroll]] for (uint w = 0; w < A_WORDS; ++w) {
    const uvec2 at = word_of_a(w);
    [[unroll]] for (uint part = 0; part < PARTS; ++part)
      tile_a[(part * TILE_ROWS + at.x) * A_STRIDE + at.y / 2] = take_word(next_a[w]);
  }
  [[unroll]] for (uint w = 0; w < B_WORDS; ++w) {
    const uint word = w * kLanes + gl_LocalInvocationIndex;
    const uint k = word / (TILE_COLUMNS / 2), at = word % (TILE_COLUMNS / 2);
    [[unroll]] for (uint part = 0; part < PARTS; ++part)
      tile_b[(part * DEPTH + k) * B_STRIDE + at] = take_word(next_b[w]);
  }
}

#define MATRIX_A coopmat<ELEMENT, gl_ScopeSubgroup, M, K, gl_MatrixUseA>
#define MATRIX_B coopmat<ELEMENT, gl_ScopeSubgroup, K, N, gl_MatrixUseB>
#define MATRIX_C coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>

MATRIX_C acc[kRows * kColumns];

// acc += A's part * B's part, along the whole depth of the tiles.
void multiply(uint part_a, uint part_b, uint row, uint column) {
  [[unroll]] for (uint k = 0; k < DEPTH; k += K) {
    MATRIX_A left[kRows];
    [[unroll]] for (uint i = 0; i < kRows; ++i)
      coopMatLoad(left[i], tile_a, (part_a * TILE_ROWS + row + i * M) * A_STRIDE + k / 2, A_STRIDE,
                  gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint j = 0; j < kColumns; ++j) {
      MATRIX_B right;
      coopMatLoad(right, tile_b, (part_b * DEPTH + k) * B_STRIDE + (column + j * N) / 2, B_STRIDE,
                  gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint i = 0; i < kRows; ++i)
        acc[i * kColumns + j] = coopMatMulAdd(left[i], right, acc[i * kColumns + j]);
    }
  }
}

void main() {
  const uint row0 = gl_WorkGroupID.x * TILE_ROWS, column0 = gl_WorkGroupID.y * TILE_COLUMNS;
  const uint row = gl_SubgroupID / 2 * (M * kRows), column = gl_SubgroupID % 2 * (N * kColumns);
  const uint per_slice = (p.k + p.slices - 1) / p.slices;
  const uint begin = SLICE * per_slice, end = min(begin + per_slice, p.k);
  [[unroll]] for (uint i = 0; i < kRows * kColumns; ++i) acc[i] = MATRIX_C(0.0);
  keep_rows(row0);
  fetch(column0, begin, end);
  for (uint k0 = begin; k0 < end; k0 += DEPTH) {
    place();
    barrier();
    if (k0 + DEPTH < end) fetch(column0, k0 + DEPTH, end);
#if PARTS == 3  // the smallest first
    multiply(0, 2, row, column);
    multiply(1, 1, row, column);
    multiply(2, 0, row, column);
    multiply(0, 1, row, column);
    multiply(1, 0, row, column);
#endif
    multiply(0, 0, row, column);
    barrier();
  }
  [[unroll]] for (uint i = 0; i < kRows * kColumns; ++i) {
    coopMatStore(acc[i], tile_c, gl_SubgroupID * M * N, N, gl_CooperativeMatrixLayoutRowMajor);
    barrier();
    const uint first_row = row0 + row + i / kColumns * M, first_column = column0 + column + i % kColumns * N;
    for (uint e = gl_SubgroupInvocationID; e < M * N; e += gl_SubgroupSize) {
      const uint r = first_row + e / N, col = first_column + e % N;
      if (r >= p.m || col >= p.n) continue;
      const uint at = place_in_c(r, col, kSpread);
      c[at] = finished(tile_c[gl_SubgroupID * M * N + e], col, at);
    }
    barrier();
  }
}
