#version 450
// Weights of a convolution that computes two pixels at once, side by side in a row of 2 n columns:
//   wide  y[ty, tx, c, p n + j] = w[ky, kx, c, j], or w[ky, kx, j, c] where `flipped`;  0 outside the kernel
//         ky = ay ty + cy,  kx = ax tx + bx p + cx
//   fold  the sum over p of the gradient of wide weights with ky = ty, kx = tx - p:
//         y[ky, kx, c, j] = x[ky, kx, c, j] + x[ky, kx + 1, c, n + j]
// See ops/conv.cpp for its purpose.
// Bindings: 0 w or x, 1 y. Dispatch: channels (columns of y) by slices of its rows (tap, c).
//! variant conv_wide
//! variant conv_fold -DFOLD
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, w) B(1, Floats, y)
#define PARAMS uint rows, slices, taps_x, channels, n, kh, kw; int ay, cy, ax, bx, cx; uint flipped;
#include "interface.glsl"

void main() {
  const uint column = CHANNEL;
#ifdef FOLD
  if (column >= n) return;
  FOR_ROWS(r, rows, slices) {
    const uint tap = r / channels, c = r % channels;
    const uint first = (tap / kw * (kw + 1) + tap % kw) * channels + c;
    y.v[r * n + column] = w.v[first * 2 * n + column] + w.v[(first + channels) * 2 * n + n + column];
  }
#else
  if (column >= 2 * n) return;
  const uint p = column / n, j = column % n;
  FOR_ROWS(r, rows, slices) {
    const uint tap = r / channels, c = r % channels;
    const ivec2 k = ivec2(ay * int(tap / taps_x) + cy, ax * int(tap % taps_x) + bx * int(p) + cx);
    const bool inside = all(greaterThanEqual(k, ivec2(0))) && k.x < int(kh) && k.y < int(kw);
    const uint of_tap = inside ? uint(k.x) * kw + uint(k.y) : 0;
    const float value = w.v[flipped != 0 ? (of_tap * n + j) * channels + c : (of_tap * channels + c) * n + j];
    y.v[r * 2 * n + column] = inside ? value : 0.0;
  }
#endif
}
