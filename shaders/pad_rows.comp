#version 450
// y[r, :columns] = x[r, :]; rows of y are columns + pad long, and the padding is never read.
// Bindings: 0 x, 1 y. Dispatch: channels (columns) by slices of rows.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#define PARAMS uint rows, columns, slices, pad;
#include "interface.glsl"

void main() {
  const uint ch = CHANNEL;
  if (ch >= columns) return;
  FOR_ROWS(r, rows, slices) y.v[r * (columns + pad) + ch] = x.v[r * columns + ch];
}
