#version 450
// y[n, c] = mean over pixels of x[n, p, c]; gradient dx[n, p, c] = dy[n, c] / pixels.
// Bindings: 0 in, 1 out. Dispatch: grid-stride over batch * c (forward) or batch * pixels * c.
//! variant global_avg_pool
//! variant global_avg_pool_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(binding = 0, std430) readonly buffer In { float x[]; };
layout(binding = 1, std430) writeonly buffer Out { float y[]; };
layout(push_constant) uniform Push { uint batch, pixels, c; };

void main() {
#ifdef GRAD
  FOR_EACH(i, batch * pixels * c) y[i] = x[i / (pixels * c) * c + i % c] / float(pixels);
#else
  FOR_EACH(i, batch * c) {
    const uint base = i / c * pixels * c + i % c;
    float sum = 0.0;
    for (uint p = 0; p < pixels; ++p) sum += x[base + p * c];
    y[i] = sum / float(pixels);
  }
#endif
}
