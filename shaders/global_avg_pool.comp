#version 450
// y[n, c] = mean over pixels of x[n, p, c]; gradient dx[n, p, c] = dy[n, c] / pixels.
// Bindings: 0 in, 1 out. Dispatch: x = ceil(c / lanes), y = batch.
//! variant global_avg_pool
//! variant global_avg_pool_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#define PARAMS uint pixels, c;
#include "interface.glsl"

void main() {
  const uint ch = gl_GlobalInvocationID.x, n = gl_WorkGroupID.y;
  if (ch >= c) return;
  const uint base = n * pixels * c + ch;
#ifdef GRAD
  const float share = x.v[n * c + ch] / float(pixels);
  uint p = 0;
  for (; p + 8 <= pixels; p += 8) {
    [[unroll]] for (uint j = 0; j < 8; ++j) y.v[base + (p + j) * c] = share;
  }
  for (; p < pixels; ++p) y.v[base + p * c] = share;
#else
  float sum = 0.0;
  uint p = 0;
  for (; p + 8 <= pixels; p += 8) {
    [[unroll]] for (uint j = 0; j < 8; ++j) sum += x.v[base + (p + j) * c];
  }
  for (; p < pixels; ++p) sum += x.v[base + p * c];
  y.v[n * c + ch] = sum / float(pixels);
#endif
}
