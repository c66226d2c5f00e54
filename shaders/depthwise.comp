#version 450
// Depthwise convolution, and the gradients of x and w. Lanes own channels.
//   y[n, oy, ox, c] = sum over taps of
//       x[n, oy s + ky d - pad_y, ox s + kx d - pad_x, c] w[ky, kx, c]  (+ bias[c]) (ReLU)
// Bindings: forward 0 x, 1 w, 2 bias, 3 y; dx 0 dy, 1 w, 2 dx; dw 0 x, 1 dy, 2 partial [slices,
// taps, c].
// Dispatch: channels by rows of y (forward) or x (dx) by batch; dw: channels by slices of (image,
// oy) by taps.
//! variant depthwise
//! variant depthwise_dx -DGRAD_X
//! variant depthwise_dw -DGRAD_W
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#if defined(GRAD_X)
#define BUFFERS(B) B(0, Floats, dy) B(1, Floats, w_) B(2, Floats, dx)
#elif defined(GRAD_W)
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, dy) B(2, Floats, partial)
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, w_) B(2, Floats, b) B(3, Floats, y)
#endif
#define PARAMS uint batch, h, w, c, oh, ow, kh, kw, stride, pad_y, pad_x, dilation, slices, relu, bias;
#include "interface.glsl"

void main() {
  const uint ch = CHANNEL;
  if (ch >= c) return;
#if defined(GRAD_X)
  const int row = int(gl_WorkGroupID.y);
  const uint n = gl_WorkGroupID.z;
  for (uint px = 0; px < w; ++px) {
    float sum = 0.0;
    for (uint ky = 0; ky < kh; ++ky) {
      const int sy = row + int(pad_y) - int(ky * dilation), oy = sy / int(stride);
      if (sy < 0 || oy * int(stride) != sy || oy >= int(oh)) continue;
      for (uint kx = 0; kx < kw; ++kx) {
        const int sx = int(px + pad_x) - int(kx * dilation), ox = sx / int(stride);
        if (sx < 0 || ox * int(stride) != sx || ox >= int(ow)) continue;
        sum += dy.v[((n * oh + oy) * ow + ox) * c + ch] * w_.v[(ky * kw + kx) * c + ch];
      }
    }
    dx.v[((n * h + row) * w + px) * c + ch] = sum;
  }
#elif defined(GRAD_W)
  const uint ky = gl_WorkGroupID.z / kw, kx = gl_WorkGroupID.z % kw, lines = batch * oh;
  float sum = 0.0;
  FOR_ROWS(line, lines, slices) {
    const uint n = line / oh, oy = line % oh, py = oy * stride + ky * dilation - pad_y;
    if (py >= h) continue;  // above the image py wraps around
    for (uint ox = 0; ox < ow; ++ox) {
      const uint px = ox * stride + kx * dilation - pad_x;
      if (px < w) sum += x.v[((n * h + py) * w + px) * c + ch] * dy.v[(line * ow + ox) * c + ch];
    }
  }
  partial.v[(gl_WorkGroupID.y * kh * kw + gl_WorkGroupID.z) * c + ch] = sum;
#else
  const uint oy = gl_WorkGroupID.y, n = gl_WorkGroupID.z;
  for (uint ox = 0; ox < ow; ++ox) {
    float sum = bias != 0 ? b.v[ch] : 0.0;
    for (uint ky = 0; ky < kh; ++ky) {
      const uint py = oy * stride + ky * dilation - pad_y;
      if (py >= h) continue;
      for (uint kx = 0; kx < kw; ++kx) {
        const uint px = ox * stride + kx * dilation - pad_x;
        if (px < w) sum += x.v[((n * h + py) * w + px) * c + ch] * w_.v[(ky * kw + kx) * c + ch];
      }
    }
    y.v[((n * oh + oy) * ow + ox) * c + ch] = relu != 0 ? relu_of(sum) : sum;
  }
#endif
}
