#version 450
// y[n, oy, ox, c] = max over the window of x [n, h, w, c]; pixels outside do not count; the last
// NaN wins. The forward pass stores which tap won (the first of equals). The gradient gathers, for
// each input pixel, the output pixels whose winner it is: without atomics, with the same bits every
// run. If windows do not overlap, each output writes its own window instead (`apart`); pixels under
// no window are zeroed before.
// Bindings: forward 0 x, 1 y, 2 winner; gradients 0 winner, 1 dy, 2 dx.
// Dispatch: x = ceil(c / lanes), y = rows of y (forward, apart) or of x (gradient), z = batch.
//! variant max_pool
//! variant max_pool_grad -DGRAD
//! variant max_pool_grad_apart -DAPART
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;

#ifdef APART
#define BUFFERS(B) B(0, Uints, winner) B(1, Floats, dy) B(2, Floats, dx)
#define PARAMS uint h, w, c, oh, ow, window, stride, pad;
#include "interface.glsl"

void main() {
  const uint ch = gl_GlobalInvocationID.x, oy = gl_WorkGroupID.y, n = gl_WorkGroupID.z;
  if (ch >= c) return;
  for (uint ox = 0; ox < ow; ++ox) {
    const uint o = ((n * oh + oy) * ow + ox) * c + ch, won = winner.v[o];
    const float g = dy.v[o];
    for (uint ky = 0; ky < window; ++ky)
      for (uint kx = 0; kx < window; ++kx) {
        const uint py = oy * stride + ky - pad, px = ox * stride + kx - pad;
        if (py < h && px < w)  // above and left wrap: large
          dx.v[((n * h + py) * w + px) * c + ch] = won == ky * window + kx ? g : 0.0;
      }
  }
}
#elif defined(GRAD)
#define BUFFERS(B) B(0, Uints, winner) B(1, Floats, dy) B(2, Floats, dx)
#define PARAMS uint h, w, c, oh, ow, window, stride, pad;
#include "interface.glsl"

// Output positions whose window holds p: o * stride <= p + pad < o * stride + window.
uvec2 windows_over(uint p, uint extent) {
  const uint at = p + pad;
  return uvec2(at < window ? 0 : (at - window) / stride + 1, min(at / stride + 1, extent));
}

void main() {
  const uint ch = gl_GlobalInvocationID.x, y = gl_WorkGroupID.y, n = gl_WorkGroupID.z;
  if (ch >= c) return;
  const uvec2 rows = windows_over(y, oh);
  for (uint x = 0; x < w; ++x) {
    const uvec2 columns = windows_over(x, ow);
    float sum = 0.0;
    for (uint oy = rows.x; oy < rows.y; ++oy)
      for (uint ox = columns.x; ox < columns.y; ++ox) {
        const uint o = ((n * oh + oy) * ow + ox) * c + ch;
        const uint tap = (y + pad - oy * stride) * window + (x + pad - ox * stride);
        sum += winner.v[o] == tap ? dy.v[o] : 0.0;
      }
    dx.v[((n * h + y) * w + x) * c + ch] = sum;
  }
}
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y) B(2, Uints, winner)
#define PARAMS uint h, w, c, oh, ow, window, stride, pad;
#include "interface.glsl"

void main() {
  const uint ch = gl_GlobalInvocationID.x, oy = gl_WorkGroupID.y, n = gl_WorkGroupID.z;
  if (ch >= c) return;
  for (uint ox = 0; ox < ow; ++ox) {
    float best = 0.0;
    uint best_tap = ~0u;
    for (uint ky = 0; ky < window; ++ky)
      for (uint kx = 0; kx < window; ++kx) {
        const uint py = oy * stride + ky - pad, px = ox * stride + kx - pad;
        if (py >= h || px >= w) continue;  // above and left wrap: large
        const float value = x.v[((n * h + py) * w + px) * c + ch];
        const bool better = best_tap == ~0u || value > best || IS_NAN(value);
        best = better ? value : best;
        best_tap = better ? ky * window + kx : best_tap;
      }
    const uint o = ((n * oh + oy) * ow + ox) * c + ch;
    y.v[o] = best;
    winner.v[o] = best_tap;
  }
}
#endif
