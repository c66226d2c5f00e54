#version 450
// y[r, k] = byte r * columns + k of x, four to a word, * scale[c] + shift[c] with c = k mod
// channels. Gives the same bits as tensor/normalize.h.
// Bindings: 0 x, 1 scale and shift [2, channels], 2 y. Dispatch: channels (columns) by slices of
// rows.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Uints, x) B(1, Floats, affine) B(2, Floats, y)
#define PARAMS uint rows, columns, channels, slices;
#include "interface.glsl"

void main() {
  const uint k = CHANNEL;
  if (k >= columns) return;
  const uint c = k % channels;
  const float scale = affine.v[c], shift = affine.v[channels + c];
  FOR_ROWS(r, rows, slices) {
    const uint i = r * columns + k;
    precise const float product = float(x.v[i / 4] >> (i % 4 * 8) & 255) * scale;
    precise const float sum = product + shift;
    y.v[i] = sum;
  }
}
