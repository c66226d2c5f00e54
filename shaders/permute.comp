#version 450
// y = x with its axes in another order: y is [d0, d1, d2, d3, d4] with the last axis over the
// lanes, s0 to s4 are the strides in x of y's axes. Bindings: 0 x, 1 y. Dispatch: channels (d4) by
// slices of rows.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#define PARAMS uint rows, d1, d2, d3, d4, slices; uint s0, s1, s2, s3, s4;
#include "interface.glsl"

void main() {
  const uint ch = CHANNEL;
  if (ch >= d4) return;
  FOR_ROWS(r, rows, slices) {
    const uint i3 = r % d3, i2 = r / d3 % d2, i1 = r / (d3 * d2) % d1, i0 = r / (d3 * d2 * d1);
    y.v[r * d4 + ch] = x.v[i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3 + ch * s4];
  }
}
