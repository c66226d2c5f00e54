#version 450
// C[m, n] = A[m, k] * B[k, n] (+ bias[n]) (ReLU), for GPUs: tiles of ROWS x COLUMNS through shared
// memory.
//
// 256 invocations share a tile as quads of 4 x 4 elements: one each, or 2 x 2 in the widest tiles.
// While a tile along k is multiplied, the next is loaded into registers. Narrow results use narrow
// tiles with more rows, because columns past the end would be wasted. An invocation loads the same
// rows (or the same k) of A in each tile, so that there are few divisions.
//
// Bindings: 0 a, 1 b [k, n], 2 side, 3 residual, 4 c [slices, m, n]. Modes and epilogue:
// gemm_params.glsl.
// Dispatch: x = ceil(m / ROWS), y = ceil(n / COLUMNS), z = groups * slices of k.
// ops/gemm_kernels.cpp knows the tiles too.
//
//! variant gemm_tiled_nn_64x64 -DMODE=0 -DROWS=64 -DCOLUMNS=64 -DDEPTH=16
//! variant gemm_tiled_tn_64x64 -DMODE=1 -DROWS=64 -DCOLUMNS=64 -DDEPTH=16
//! variant gemm_tiled_conv_64x64 -DMODE=2 -DROWS=64 -DCOLUMNS=64 -DDEPTH=16
//! variant gemm_tiled_conv_dx_64x64 -DMODE=3 -DROWS=64 -DCOLUMNS=64 -DDEPTH=16
//! variant gemm_tiled_conv_dw_64x64 -DMODE=4 -DROWS=64 -DCOLUMNS=64 -DDEPTH=16
//! variant gemm_tiled_nn_128x128 -DMODE=0 -DROWS=128 -DCOLUMNS=128 -DDEPTH=16
//! variant gemm_tiled_tn_128x128 -DMODE=1 -DROWS=128 -DCOLUMNS=128 -DDEPTH=16
//! variant gemm_tiled_conv_128x128 -DMODE=2 -DROWS=128 -DCOLUMNS=128 -DDEPTH=16
//! variant gemm_tiled_conv_dx_128x128 -DMODE=3 -DROWS=128 -DCOLUMNS=128 -DDEPTH=16
//! variant gemm_tiled_conv_dw_128x128 -DMODE=4 -DROWS=128 -DCOLUMNS=128 -DDEPTH=16
//! variant gemm_tiled_nn_128x32 -DMODE=0 -DROWS=128 -DCOLUMNS=32 -DDEPTH=16
//! variant gemm_tiled_tn_128x32 -DMODE=1 -DROWS=128 -DCOLUMNS=32 -DDEPTH=16
//! variant gemm_tiled_conv_128x32 -DMODE=2 -DROWS=128 -DCOLUMNS=32 -DDEPTH=16
//! variant gemm_tiled_conv_dx_128x32 -DMODE=3 -DROWS=128 -DCOLUMNS=32 -DDEPTH=16
//! variant gemm_tiled_conv_dw_128x32 -DMODE=4 -DROWS=128 -DCOLUMNS=32 -DDEPTH=16
//! variant gemm_tiled_nn_256x16 -DMODE=0 -DROWS=256 -DCOLUMNS=16 -DDEPTH=8
//! variant gemm_tiled_tn_256x16 -DMODE=1 -DROWS=256 -DCOLUMNS=16 -DDEPTH=8
//! variant gemm_tiled_conv_256x16 -DMODE=2 -DROWS=256 -DCOLUMNS=16 -DDEPTH=8
//! variant gemm_tiled_conv_dx_256x16 -DMODE=3 -DROWS=256 -DCOLUMNS=16 -DDEPTH=8
//! variant gemm_tiled_conv_dw_256x16 -DMODE=4 -DROWS=256 -DCOLUMNS=16 -DDEPTH=8
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "finite.glsl"
#include "gemm_params.glsl"

#define LANES 256
#define QUADS (ROWS * COLUMNS / (16 * LANES) == 4 ? 2 : 1)  // per invocation, along each axis
#define LANES_X (COLUMNS / (4 * QUADS))
#define LANES_Y (LANES / LANES_X)
#define LOADS_A (ROWS * DEPTH / LANES)
#define LOADS_B ((COLUMNS * DEPTH + LANES - 1) / LANES)

layout(local_size_x = LANES) in;
layout(binding = 0, std430) readonly buffer A { float a[]; };
layout(binding = 1, std430) readonly buffer B { float b[]; };
layout(binding = 2, std430) readonly buffer Side { float side[]; };
layout(binding = 3, std430) readonly buffer Residual { float residual[]; };
layout(binding = 4, std430) writeonly buffer C { float c[]; };
layout(push_constant) uniform Push { GemmParams p; };
layout(constant_id = 0) const uint kSpread = 0;  // 1: lines of C are not contiguous
layout(constant_id = 1) const uint kJoins = 0;   // RESIDUAL, KEEP

// A is stored transposed. Its lines are padded by a vector, so that neighbours along k write to
// different banks.
shared vec4 tile_a[DEPTH][ROWS / 4 + 1];
shared vec4 tile_b[DEPTH][COLUMNS / 4];

#include "gemm_operand.glsl"

float next_a[LOADS_A], next_b[LOADS_B];

// Invocations read neighbouring addresses: along k for row-major A, where one invocation stays at
// one k, and along rows otherwise, where it stays at one row.
#if MODE == MODE_NN || MODE == MODE_CONV || MODE == MODE_CONV_DX
#define ROWS_KEPT LOADS_A
#define ROW_OF_LOAD(j) (gl_LocalInvocationIndex / DEPTH + LANES / DEPTH * (j))
#define K_OF_LOAD(j) (gl_LocalInvocationIndex % DEPTH)
#else
#define ROWS_KEPT 1
#define ROW_OF_LOAD(j) (gl_LocalInvocationIndex % ROWS)
#define K_OF_LOAD(j) (gl_LocalInvocationIndex / ROWS + LANES / ROWS * (j))
#endif

ivec3 kept[ROWS_KEPT];  // part_of_row() of the rows that this invocation loads

void keep_rows(uint row0) {
  [[unroll]] for (uint j = 0; j < ROWS_KEPT; ++j) kept[j] = part_of_row(row0 + ROW_OF_LOAD(j));
}

void load_a(uint k0, uint end) {
#if ROWS_KEPT > 1
  const ivec3 k = part_of_k(k0 + K_OF_LOAD(0), end);
  [[unroll]] for (uint j = 0; j < LOADS_A; ++j) next_a[j] = element_of_a(kept[j], k);
#else
  [[unroll]] for (uint j = 0; j < LOADS_A; ++j)
    next_a[j] = element_of_a(kept[0], part_of_k(k0 + K_OF_LOAD(j), end));
#endif
}

void load_b(uint col0, uint k0, uint end) {
  const uint column = col0 + gl_LocalInvocationIndex % COLUMNS;
  [[unroll]] for (uint j = 0; j < LOADS_B; ++j) {
    const uint k = k0 + gl_LocalInvocationIndex / COLUMNS + LANES / COLUMNS * j;
    next_b[j] = k < end && column < p.n ? b[(k * p.groups + GROUP) * p.n + column] : 0.0;
  }
}

void store_tiles() {
  [[unroll]] for (uint j = 0; j < LOADS_A; ++j)
    tile_a[K_OF_LOAD(j)][ROW_OF_LOAD(j) / 4][ROW_OF_LOAD(j) % 4] = next_a[j];
  const uint column = gl_LocalInvocationIndex % COLUMNS;
  [[unroll]] for (uint j = 0; j < LOADS_B; ++j) {
    const uint d = gl_LocalInvocationIndex / COLUMNS + LANES / COLUMNS * j;
    if (d < DEPTH) tile_b[d][column / 4][column % 4] = next_b[j];
  }
}

void main() {
  const uint row0 = gl_WorkGroupID.x * ROWS, col0 = gl_WorkGroupID.y * COLUMNS;
  const uint tx = gl_LocalInvocationIndex % LANES_X, ty = gl_LocalInvocationIndex / LANES_X;
  const uint per_slice = (p.k + p.slices - 1) / p.slices;
  const uint begin = SLICE * per_slice, end = min(begin + per_slice, p.k);
  vec4 acc[4 * QUADS][QUADS];
  [[unroll]] for (uint i = 0; i < 4 * QUADS; ++i)
    [[unroll]] for (uint j = 0; j < QUADS; ++j) acc[i][j] = vec4(0);
  keep_rows(row0);
  load_a(begin, end);
  load_b(col0, begin, end);
  for (uint k0 = begin; k0 < end; k0 += DEPTH) {
    store_tiles();
    barrier();
    if (k0 + DEPTH < end) {
      load_a(k0 + DEPTH, end);
      load_b(col0, k0 + DEPTH, end);
    }
    for (uint d = 0; d < DEPTH; ++d) {
      vec4 av[QUADS], bv[QUADS];
      [[unroll]] for (uint q = 0; q < QUADS; ++q) {
        av[q] = tile_a[d][q * LANES_Y + ty];
        bv[q] = tile_b[d][q * LANES_X + tx];
      }
      [[unroll]] for (uint i = 0; i < 4 * QUADS; ++i)
        [[unroll]] for (uint j = 0; j < QUADS; ++j) acc[i][j] += av[i / 4][i % 4] * bv[j];
    }
    barrier();
  }
  [[unroll]] for (uint i = 0; i < 4 * QUADS; ++i)
    [[unroll]] for (uint j = 0; j < 4 * QUADS; ++j) {
      const uint row = row0 + 4 * (i / 4 * LANES_Y + ty) + i % 4;
      const uint col = col0 + 4 * (j / 4 * LANES_X + tx) + j % 4;
      if (row >= p.m || col >= p.n) continue;
      const uint at = place_in_c(row, col, kSpread);
      c[at] = finished(acc[i][j / 4][j % 4], col, at);
    }
}
