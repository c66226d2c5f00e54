#version 450
// C[m, n] = A[m, k] * B[k, n] (+ bias[n]) (ReLU), for GPUs: tiles of ROWS x COLUMNS through shared
// memory.
//
// Invocations share a tile as quads of 4 x 4 elements: one each, or 2 x 2 in wide tiles. While
// a tile along k is multiplied, the next is loaded into registers. Narrow results use narrow tiles
// with more rows, because columns past the end would be wasted.
//
// Invocations load four neighbouring elements at a time: along k of A where it is stored by rows,
// along the rows where it is stored by k. kWide says of which operands these are vectors in memory,
// whose extents along that axis are multiples of four.
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
//! variant gemm_tiled_nn_128x128 -DMODE=0 -DROWS=128 -DCOLUMNS=128 -DDEPTH=16 -DBUFFERS=2
//! variant gemm_tiled_tn_128x128 -DMODE=1 -DROWS=128 -DCOLUMNS=128 -DDEPTH=16
//! variant gemm_tiled_conv_128x128 -DMODE=2 -DROWS=128 -DCOLUMNS=128 -DDEPTH=16 -DBUFFERS=2
//! variant gemm_tiled_conv_dx_128x128 -DMODE=3 -DROWS=128 -DCOLUMNS=128 -DDEPTH=16 -DBUFFERS=2
//! variant gemm_tiled_conv_dw_128x128 -DMODE=4 -DROWS=128 -DCOLUMNS=128 -DDEPTH=16 -DBUFFERS=2
//! variant gemm_tiled_nn_128x64 -DMODE=0 -DROWS=128 -DCOLUMNS=64 -DDEPTH=16 -DLANES=128
//! variant gemm_tiled_tn_128x64 -DMODE=1 -DROWS=128 -DCOLUMNS=64 -DDEPTH=16 -DLANES=128
//! variant gemm_tiled_conv_128x64 -DMODE=2 -DROWS=128 -DCOLUMNS=64 -DDEPTH=16 -DLANES=128
//! variant gemm_tiled_conv_dx_128x64 -DMODE=3 -DROWS=128 -DCOLUMNS=64 -DDEPTH=16 -DLANES=128
//! variant gemm_tiled_conv_dw_128x64 -DMODE=4 -DROWS=128 -DCOLUMNS=64 -DDEPTH=16 -DLANES=128
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

#ifndef LANES
#define LANES 256
#endif
#ifndef BUFFERS  // 2: a tile is placed while slow subgroups still read the one before
#define BUFFERS 1
#endif
#define QUADS (ROWS * COLUMNS / (16 * LANES) == 4 ? 2 : 1)  // per invocation, along each axis
#define LANES_X (COLUMNS / (4 * QUADS))
#define LANES_Y (LANES / LANES_X)
#define FOURS_OF_A (ROWS * DEPTH / 4 / LANES)  // that an invocation loads
#define FOURS_OF_B ((COLUMNS * DEPTH / 4 + LANES - 1) / LANES)

layout(local_size_x = LANES) in;
layout(binding = 0, std430) readonly buffer A { float a[]; };
layout(binding = 0, std430) readonly buffer WideA { vec4 wide_a[]; };
layout(binding = 1, std430) readonly buffer B { float b[]; };
layout(binding = 1, std430) readonly buffer WideB { vec4 wide_b[]; };
layout(binding = 2, std430) readonly buffer Side { float side[]; };
layout(binding = 3, std430) readonly buffer Residual { float residual[]; };
layout(binding = 4, std430) writeonly buffer C { float c[]; };
layout(binding = 4, std430) writeonly buffer WideC { vec4 wide_c[]; };
layout(push_constant) uniform Push { GemmParams p; };
layout(constant_id = 0) const uint kSpread = 0;  // 1: lines of C are not contiguous
layout(constant_id = 1) const uint kWide = 0;    // 1: A, 2: B
layout(constant_id = 2) const uint kUnroll = 1;  // steps along k: DEPTH, or 1 where compiling would take long
layout(constant_id = 3) const uint kJoins = 0;   // RESIDUAL, KEEP

// A is stored transposed. Its lines are padded by a vector, so that neighbours along k write to
// different banks.
shared vec4 tile_a[BUFFERS * DEPTH][ROWS / 4 + 1];
shared vec4 tile_b[BUFFERS * DEPTH][COLUMNS / 4];

#include "gemm_operand.glsl"

vec4 next_a[FOURS_OF_A], next_b[FOURS_OF_B];

#define I gl_LocalInvocationIndex
// The row and the k of the first element of four `w` of A. Neighbours read neighbouring addresses:
// along k for row-major A, where one invocation stays at one k, and along rows otherwise, where it
// stays at one row.
#if MODE == MODE_NN || MODE == MODE_CONV || MODE == MODE_CONV_DX
#define ALONG_K 1
#define ROW_OF_A(w) (I / (DEPTH / 4) + (w) * (LANES / (DEPTH / 4)))
#define K_OF_A(w) (I % (DEPTH / 4) * 4)
#define ROWS_KEPT FOURS_OF_A
#define KS_KEPT ((kWide & 1) != 0 ? 1 : 4)
#define ROW_KEPT(i) ROW_OF_A(i)
#define K_KEPT(i) (K_OF_A(0) + (i))
#else
#define ALONG_K 0
#define ROW_OF_A(w) (I % (ROWS / 4) * 4)
#define K_OF_A(w) (I / (ROWS / 4) + (w) * (LANES / (ROWS / 4)))
#define ROWS_KEPT 4
#define KS_KEPT FOURS_OF_A
#define ROW_KEPT(i) (ROW_OF_A(0) + (i))
#define K_KEPT(i) K_OF_A(i)
#endif

// The parts of the rows that an invocation loads, and its positions along k, which move on from tile
// to tile. Of vectors, only the first element counts.
Part rows[ROWS_KEPT];
uvec3 positions[4];

void keep(uint row0, uint k0) {
  [[unroll]] for (uint i = 0; i < ROWS_KEPT; ++i) rows[i] = part_of_row(row0 + ROW_KEPT(i));
  [[unroll]] for (uint i = 0; i < KS_KEPT; ++i) positions[i] = position_of(k0 + K_KEPT(i));
}

void move_on(uvec3 step) {
  [[unroll]] for (uint i = 0; i < KS_KEPT; ++i) positions[i] = moved(positions[i], step);
}

void fetch_a(uint k0, uint end) {
  Part ks[4];
  [[unroll]] for (uint i = 0; i < KS_KEPT; ++i)
    ks[i] = part_of_k(positions[i], k0 + K_KEPT(i), k0 + K_KEPT(i) < end);
  [[unroll]] for (uint w = 0; w < FOURS_OF_A; ++w) {
    if ((kWide & 1) != 0) {
      const int at = ALONG_K != 0 ? place_of_a(rows[w], ks[0]) : place_of_a(rows[0], ks[w]);
      next_a[w] = at < 0 ? vec4(0) : wide_a[at / 4];
    } else {
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        const int at = ALONG_K != 0 ? place_of_a(rows[w], ks[i]) : place_of_a(rows[i], ks[w]);
        next_a[w][i] = at < 0 ? 0.0 : a[at];
      }
    }
  }
}

void fetch_b(uint col0, uint k0, uint end) {
  const uint column = col0 + I % (COLUMNS / 4) * 4;
  [[unroll]] for (uint w = 0; w < FOURS_OF_B; ++w) {
    const uint k = k0 + I / (COLUMNS / 4) + LANES / (COLUMNS / 4) * w;
    next_b[w] = four_of_b(k, column, end);
  }
}

void store_tiles(uint to) {
  [[unroll]] for (uint w = 0; w < FOURS_OF_A; ++w) {
    const uint row = ROW_OF_A(w), k = K_OF_A(w);
#if ALONG_K
    [[unroll]] for (uint i = 0; i < 4; ++i) tile_a[to + k + i][row / 4][row % 4] = next_a[w][i];
#else
    tile_a[to + k][row / 4] = next_a[w];
#endif
  }
  [[unroll]] for (uint w = 0; w < FOURS_OF_B; ++w) {
    const uint d = I / (COLUMNS / 4) + LANES / (COLUMNS / 4) * w;
    if (d < DEPTH) tile_b[to + d][I % (COLUMNS / 4)] = next_b[w];
  }
}

void main() {
  const uint row0 = gl_WorkGroupID.x * ROWS, col0 = gl_WorkGroupID.y * COLUMNS;
  const uint tx = I % LANES_X, ty = I / LANES_X;
  const uint per_slice = (p.k + p.slices - 1) / p.slices;
  const uint begin = SLICE * per_slice, end = min(begin + per_slice, p.k);
  const uvec3 step = position_of(DEPTH);
  vec4 acc[4 * QUADS][QUADS];
  [[unroll]] for (uint i = 0; i < 4 * QUADS; ++i)
    [[unroll]] for (uint j = 0; j < QUADS; ++j) acc[i][j] = vec4(0);
  keep(row0, begin);
  fetch_a(begin, end);
  fetch_b(col0, begin, end);
  for (uint k0 = begin, tile = 0; k0 < end; k0 += DEPTH) {
    store_tiles(tile);
    barrier();
    if (k0 + DEPTH < end) {
      move_on(step);
      fetch_a(k0 + DEPTH, end);
      fetch_b(col0, k0 + DEPTH, end);
    }
    for (uint first = 0; first < DEPTH; first += kUnroll)
      [[unroll]] for (uint next = 0; next < kUnroll; ++next) {
        const uint d = tile + first + next;
        vec4 av[QUADS], bv[QUADS];
        [[unroll]] for (uint q = 0; q < QUADS; ++q) {
          av[q] = tile_a[d][q * LANES_Y + ty];
          bv[q] = tile_b[d][q * LANES_X + tx];
        }
        [[unroll]] for (uint i = 0; i < 4 * QUADS; ++i)
          [[unroll]] for (uint j = 0; j < QUADS; ++j) acc[i][j] += av[i / 4][i % 4] * bv[j];
      }
#if BUFFERS == 2
    tile ^= DEPTH;
#else
    barrier();
#endif
  }
  [[unroll]] for (uint i = 0; i < 4 * QUADS; ++i)
    [[unroll]] for (uint j = 0; j < QUADS; ++j)
      write_four(row0 + 4 * (i / 4 * LANES_Y + ty) + i % 4, col0 + 4 * (j * LANES_X + tx), acc[i][j]);
}
