#version 450
// y[n, c] = mean over pixels of x[n, p, c]; gradient dx[n, p, c] = dy[n, c] / pixels.
// Bindings: 0 in, 1 out. Dispatch: x = ceil(c / lanes), y = batch.
//! variant global_avg_pool
//! variant global_avg_pool_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
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
  for (uint p = 0; p < pixels; ++p) y.v[base + p * c] = share;
#else
  float sum = 0.0;
  for (uint p = 0; p < pixels; ++p) sum += x.v[base + p * c];
  y.v[n * c + ch] = sum / float(pixels);
#endif
}
