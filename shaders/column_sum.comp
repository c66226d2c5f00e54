#version 450
// out[z, c] = sum of x[r, c] over the rows r of slice z: the first pass of a bias gradient.
// Bindings: 0 x [rows, columns], 1 out [slices, columns]. Dispatch: channels by slices of rows.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#define PARAMS uint rows, columns, slices;
#include "interface.glsl"

void main() {
  const uint c = CHANNEL;
  if (c >= columns) return;
  float sum = 0.0;
  FOR_ROWS(r, rows, slices) sum += x.v[r * columns + c];
  y.v[gl_WorkGroupID.y * columns + c] = sum;
}
