#version 450
// y[n, oy, ox, c] = max over the window of x [n, h, w, c]; pixels outside do not count.
// The forward pass keeps which tap won (the first of equals); the gradient gathers, for each input
// pixel, the output pixels whose winner it is: no atomics, the same bits every run.
// Bindings: forward 0 x, 1 y, 2 winner; gradient 0 winner, 1 dy, 2 dx.
// Dispatch: grid-stride over the elements of y (forward) or x (gradient).
//! variant max_pool
//! variant max_pool_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { uint batch, h, w, c, oh, ow, window, stride, pad; };
#ifdef GRAD
layout(binding = 0, std430) readonly buffer Winner { uint winner[]; };
layout(binding = 1, std430) readonly buffer Dy { float dy[]; };
layout(binding = 2, std430) writeonly buffer Dx { float dx[]; };

void main() {
  FOR_EACH(i, batch * h * w * c) {
    const uint ch = i % c, x = i / c % w, y = i / (c * w) % h, n = i / (c * w * h);
    float sum = 0.0;
    // Output rows whose window holds y: oy * stride - pad <= y < oy * stride - pad + window.
    const uint y_end = min((y + pad) / stride + 1, oh), x_end = min((x + pad) / stride + 1, ow);
    const uint y_begin = y + pad < window ? 0 : (y + pad - window) / stride + 1;
    const uint x_begin = x + pad < window ? 0 : (x + pad - window) / stride + 1;
    for (uint oy = y_begin; oy < y_end; ++oy)
      for (uint ox = x_begin; ox < x_end; ++ox) {
        const uint o = ((n * oh + oy) * ow + ox) * c + ch;
        const uint tap = (y + pad - oy * stride) * window + (x + pad - ox * stride);
        if (winner[o] == tap) sum += dy[o];
      }
    dx[i] = sum;
  }
}
#else
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) writeonly buffer Y { float y[]; };
layout(binding = 2, std430) writeonly buffer Winner { uint winner[]; };

void main() {
  FOR_EACH(i, batch * oh * ow * c) {
    const uint ch = i % c, ox = i / c % ow, oy = i / (c * ow) % oh, n = i / (c * ow * oh);
    float best = 0.0;
    uint best_tap = ~0u;
    for (uint ky = 0; ky < window; ++ky)
      for (uint kx = 0; kx < window; ++kx) {
        const uint py = oy * stride + ky - pad, px = ox * stride + kx - pad;
        if (py >= h || px >= w) continue;  // above and left wrap: large
        const float value = x[((n * h + py) * w + px) * c + ch];
        if (best_tap == ~0u || value > best) {
          best = value;
          best_tap = ky * window + kx;
        }
      }
    y[i] = best;
    winner[i] = best_tap;
  }
}
#endif
