#version 450
// C[m, n] = A[m, k] * B[k, n] (+ bias[n]) (ReLU) for a few rows, on devices whose "GPU" is a
// CPU's vector unit: predictions of single samples. Every element of B is used only ROWS times, so
// reading B from memory dominates.
//
// One workgroup is one subgroup and computes ROWS by 4 * LANES of C. A lane holds one element of A
// for each row, which is broadcast in turn. Neighbouring lanes read neighbouring columns of B.
//
// Bindings (device addresses): a, b [k, n], side, residual (not read), c [m, n]. Mode nn of
// gemm_params.glsl, one group, one slice; of its epilogue BIAS and RELU.
// Dispatch: x = ceil(m / ROWS), y = ceil(n / (4 * LANES)).
//
//! variant gemm_cpu_row_8 -DLANES=8
//! variant gemm_cpu_row_16 -DLANES=16
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_basic : require
#include "finite.glsl"
#include "gemm_params.glsl"
#define ROWS 4

layout(local_size_x = LANES) in;
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };
layout(push_constant) uniform Push {
  Floats a, b, side, residual, c;
  GemmParams p;
};

// Accumulates the i-th k that the lanes hold.
#define STEP(i)                                                                                         \
  {                                                                                                     \
    const uint at = min(k0 + i, p.k - 1) * p.n;                                                         \
    const vec4 weights =                                                                                \
        vec4(b.v[at + column.x], b.v[at + column.y], b.v[at + column.z], b.v[at + column.w]);           \
    [[unroll]] for (uint r = 0; r < ROWS; ++r) acc[r] += subgroupBroadcast(own[r], i) * weights;        \
  }

vec4 acc[ROWS];  // by row; component j is column j * LANES + lane

void main() {
  const uint lane = gl_SubgroupInvocationID;
  const uint row0 = gl_WorkGroupID.x * ROWS, column0 = gl_WorkGroupID.y * 4 * LANES + lane;
  uvec4 column = uvec4(column0) + uvec4(0, LANES, 2 * LANES, 3 * LANES);
  const bvec4 inside = lessThan(column, uvec4(p.n));
  column = min(column, uvec4(p.n - 1));
  [[unroll]] for (uint r = 0; r < ROWS; ++r) acc[r] = vec4(0);
  for (uint k0 = 0; k0 < p.k; k0 += LANES) {
    float own[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      const float value = a.v[min(row0 + r, p.m - 1) * p.k + min(k0 + lane, p.k - 1)];
      own[r] = k0 + lane < p.k ? value : 0.0;
    }
    STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
#if LANES == 16
    STEP(8) STEP(9) STEP(10) STEP(11) STEP(12) STEP(13) STEP(14) STEP(15)
#endif
  }
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    if (!inside[j]) continue;
    const float shift = (p.epilogue & BIAS) != 0 ? side.v[column[j]] : 0.0;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      if (row0 + r >= p.m) continue;
      const float value = acc[r][j] + shift;
      c.v[(row0 + r) * p.n + column[j]] = (p.epilogue & RELU) != 0 ? relu_of(value) : value;
    }
  }
}
