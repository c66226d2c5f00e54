#version 450
// C[m, n] = A[m, k] * B[k, n] (+ bias[n]) (ReLU), for GPUs: 64 x 64 tiles through shared memory.
//
// 256 invocations; each computes 4 x 4 elements of C. Tiles of A are stored transposed and padded by
// one so that neighbouring invocations hit different banks.
//
// Bindings: 0 a, 1 b [k, n], 2 side, 3 residual, 4 c [slices, m, n]. Modes and epilogue: gemm_params.glsl.
// Dispatch: x = ceil(m / 64), y = ceil(n / 64), z = groups * slices of k.
//
//! variant gemm_tiled_nn -DMODE=0
//! variant gemm_tiled_tn -DMODE=1
//! variant gemm_tiled_conv -DMODE=2
//! variant gemm_tiled_conv_dx -DMODE=3
//! variant gemm_tiled_conv_dw -DMODE=4
#extension GL_GOOGLE_include_directive : require
#include "gemm_params.glsl"

#define TILE 64
#define DEPTH 16

layout(local_size_x = 256) in;
layout(binding = 0, std430) readonly buffer A { float a[]; };
layout(binding = 1, std430) readonly buffer B { float b[]; };
layout(binding = 2, std430) readonly buffer Side { float side[]; };
layout(binding = 3, std430) readonly buffer Residual { float residual[]; };
layout(binding = 4, std430) writeonly buffer C { float c[]; };
layout(push_constant) uniform Push { GemmParams p; };
layout(constant_id = 0) const uint kSpread = 0;  // 1: lines of C are not one behind the other
layout(constant_id = 1) const uint kJoins = 0;   // RESIDUAL, KEEP

shared float tile_a[DEPTH][TILE + 1];
shared float tile_b[DEPTH][TILE];

#include "gemm_operand.glsl"

void load_tiles(uint row0, uint col0, uint k0, uint end) {
  for (uint i = gl_LocalInvocationIndex; i < TILE * DEPTH; i += 256) {
    // Neighbours read neighbouring addresses: along k for row-major A, along rows otherwise.
    const bool along_k = MODE == MODE_NN || MODE == MODE_CONV || MODE == MODE_CONV_DX;
    const uint r = along_k ? i / DEPTH : i % TILE, d = along_k ? i % DEPTH : i / TILE;
    const bool inside = row0 + r < p.m && k0 + d < end;
    tile_a[d][r] = inside ? element_of_a(row0 + r, k0 + d) : 0.0;
    const uint bc = i % TILE, bd = i / TILE;
    tile_b[bd][bc] =
        k0 + bd < end && col0 + bc < p.n
            ? b[((k0 + bd) * p.groups + GROUP) * p.n + col0 + bc]
            : 0.0;
  }
}

void main() {
  const uint row0 = gl_WorkGroupID.x * TILE, col0 = gl_WorkGroupID.y * TILE;
  const uint tx = gl_LocalInvocationIndex % 16, ty = gl_LocalInvocationIndex / 16;
  const uint per_slice = (p.k + p.slices - 1) / p.slices;
  const uint begin = SLICE * per_slice, end = min(begin + per_slice, p.k);
  vec4 acc[4] = vec4[4](vec4(0), vec4(0), vec4(0), vec4(0));
  for (uint k0 = begin; k0 < end; k0 += DEPTH) {
    load_tiles(row0, col0, k0, end);
    barrier();
    for (uint d = 0; d < DEPTH; ++d) {
      const vec4 bv = vec4(tile_b[d][tx], tile_b[d][tx + 16], tile_b[d][tx + 32],
                           tile_b[d][tx + 48]);
      acc[0] += tile_a[d][ty * 4] * bv;
      acc[1] += tile_a[d][ty * 4 + 1] * bv;
      acc[2] += tile_a[d][ty * 4 + 2] * bv;
      acc[3] += tile_a[d][ty * 4 + 3] * bv;
    }
    barrier();
  }
  for (uint i = 0; i < 4; ++i)
    for (uint j = 0; j < 4; ++j) {
      const uint row = row0 + ty * 4 + i, col = col0 + tx + 16 * j;
      if (row >= p.m || col >= p.n) continue;
      const uint at = place_in_c(row, col, kSpread);
      c[at] = finished(acc[i][j], col, at);
    }
}
