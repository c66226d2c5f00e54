#version 450
// y[r, c] = x[r, c] + b[c].
// Bindings: 0 x, 1 b, 2 y. Dispatch: channels by slices of rows.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, b) B(2, Floats, y)
#define PARAMS uint rows, columns, slices;
#include "interface.glsl"

void main() {
  const uint ch = CHANNEL;
  if (ch >= columns) return;
  const float shift = b.v[ch];
  FOR_ROWS(r, rows, slices) y.v[r * columns + ch] = x.v[r * columns + ch] + shift;
}
