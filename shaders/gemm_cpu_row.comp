#version 450
// C[m, n] = A[m, k] * B[k, n] (+ bias[n]) (ReLU) for a few rows, on devices whose "GPU" is a
// CPU's vector unit: predictions of single samples. Every element of B is used only once for each
// row, so reading B from memory dominates.
//
// One workgroup is one subgroup and computes kRows by 2 * LANE_PAIRS * LANES of C. A lane holds one
// element of A for each row, which is broadcast in turn. Neighbouring lanes read neighbouring pairs
// of columns of B.
//
// Bindings (device addresses): a, b [k, n], side, residual (not read), c [m, n]. Mode nn of
// gemm_params.glsl, one group, one slice; of its epilogue BIAS and RELU.
// Dispatch: x = ceil(m / kRows), y = ceil(n / (2 * LANE_PAIRS * LANES)).
//
//! variant gemm_cpu_row_8 -DLANES=8
//! variant gemm_cpu_row_16 -DLANES=16
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_basic : require
#include "finite.glsl"
#include "gemm_params.glsl"
#define MOST_ROWS 4
#define LANE_PAIRS 2  // of columns

layout(local_size_x = LANES) in;
layout(constant_id = 0) const uint kRows = MOST_ROWS;
layout(constant_id = 1) const uint kPairs = 0;  // as in gemm_cpu_operand.glsl; of B only

#define WIDTH 2
#define VEC vec2
#include "gemm_cpu_operand.glsl"

// Accumulates the i-th k that the lanes hold.
#define STEP(i)                                                                             \
  {                                                                                         \
    const uint at = min(k0 + i, p.k - 1) * p.n;                                             \
    vec2 weights[LANE_PAIRS];                                                               \
    [[unroll]] for (uint j = 0; j < LANE_PAIRS; ++j)                                        \
      weights[j] = load_b(at + column[j], p.n - 1 - column[j]);                             \
    [[unroll]] for (uint r = 0; r < kRows; ++r) {                                           \
      const float x = subgroupBroadcast(own[r], i);                                         \
      [[unroll]] for (uint j = 0; j < LANE_PAIRS; ++j) acc[r][j] += x * weights[j];         \
    }                                                                                       \
  }

vec2 acc[MOST_ROWS][LANE_PAIRS];

void main() {
  const uint lane = gl_SubgroupInvocationID, row0 = gl_WorkGroupID.x * kRows;
  uint first_column[LANE_PAIRS], column[LANE_PAIRS];  // of a lane's pairs; the latter in range
  [[unroll]] for (uint j = 0; j < LANE_PAIRS; ++j) {
    first_column[j] = ((gl_WorkGroupID.y * LANE_PAIRS + j) * LANES + lane) * 2;
    column[j] = min(first_column[j], LAST_COLUMN);
    [[unroll]] for (uint r = 0; r < kRows; ++r) acc[r][j] = vec2(0);
  }
  for (uint k0 = 0; k0 < p.k; k0 += LANES) {
    float own[MOST_ROWS];
    [[unroll]] for (uint r = 0; r < kRows; ++r) {
      const float value = a.v[min(row0 + r, p.m - 1) * p.k + min(k0 + lane, p.k - 1)];
      own[r] = k0 + lane < p.k ? value : 0.0;
    }
    STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
#if LANES == 16
    STEP(8) STEP(9) STEP(10) STEP(11) STEP(12) STEP(13) STEP(14) STEP(15)
#endif
  }
  [[unroll]] for (uint j = 0; j < LANE_PAIRS; ++j)
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      const uint to = first_column[j] + i;
      if (to >= p.n) continue;
      const float shift = (p.epilogue & BIAS) != 0 ? side.v[to] : 0.0;
      [[unroll]] for (uint r = 0; r < kRows; ++r) {
        if (row0 + r >= p.m) continue;
        const float value = acc[r][j][i] + shift;
        c.v[(row0 + r) * p.n + to] = (p.epilogue & RELU) != 0 ? relu_of(value) : value;
      }
    }
}
