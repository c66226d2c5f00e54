#version 450
// y[n, oy, ox, c] = max over the window of x [n, h, w, c]; pixels outside do not count; the last
// NaN wins. The forward pass stores the tap that won (the first of equals). The gradient gathers,
// for each input pixel, the output pixels whose winner it is: without atomics, with the same bits
// every run. If windows do not overlap, each output writes its own window instead (`apart`); pixels
// under no window are zeroed before. A GPU gathers for a block of STRIDE x STRIDE pixels at once if
// few windows overlap: they lie under the same windows. Bindings: forward 0 x, 1 y, 2 winner;
// gradients 0 winner, 1 dy, 2 dx. Dispatch: x = ceil(row / lanes) of a row [ow, c] of y (forward,
// apart), [w, c] of x (gradient) or [blocks, c], y = slices of the batch, z = rows.
//! variant max_pool
//! variant max_pool_grad -DGRAD
//! variant max_pool_grad_blocks -DGRAD -DBLOCKS
//! variant max_pool_grad_apart -DAPART
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint WINDOW = 2;  // constants, so that loops over a window unroll
layout(constant_id = 2) const uint STRIDE = 2;
layout(constant_id = 3) const uint PAD = 0;  // if 0, windows are inside

#if defined(GRAD) || defined(APART)
#define BUFFERS(B) B(0, Uints, winner) B(1, Floats, dy) B(2, Floats, dx)
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y) B(2, Uints, winner)
#endif
#define PARAMS uint batch, slices, h, w, c, oh, ow;
#include "interface.glsl"

#ifdef GRAD
const uint MOST = (WINDOW + STRIDE - 1) / STRIDE;  // windows over a pixel, along an axis

#ifdef BLOCKS
#define FOR_WINDOWS(i, j)                           \
  [[unroll]] for (uint i = 0; i < MOST; ++i)        \
    [[unroll]] for (uint j = 0; j < MOST; ++j)

void main() {
  const uint k = CHANNEL, by = gl_WorkGroupID.z;
  if (k >= ((w - 1 + PAD) / STRIDE + 1) * c) return;
  const uint bx = k / c, ch = k % c;
  FOR_ROWS(n, batch, slices) {
    uint won[MOST * MOST];
    float dy_[MOST * MOST];
    FOR_WINDOWS(i, j) {
      const uint oy = by + 1 + i - MOST, ox = bx + 1 + j - MOST;  // may wrap around
      const bool inside = oy < oh && ox < ow;
      const uint o = inside ? ((n * oh + oy) * ow + ox) * c + ch : 0, tap = winner.v[o];
      won[i * MOST + j] = inside ? tap : ~0u;
      dy_[i * MOST + j] = dy.v[o];
    }
    [[unroll]] for (uint a = 0; a < STRIDE; ++a)
      [[unroll]] for (uint b = 0; b < STRIDE; ++b) {
        float sum = 0.0;
        FOR_WINDOWS(i, j) {
          const uint ky = a + (MOST - 1 - i) * STRIDE, kx = b + (MOST - 1 - j) * STRIDE;
          const bool over = ky < WINDOW && kx < WINDOW;
          sum += over && won[i * MOST + j] == ky * WINDOW + kx ? dy_[i * MOST + j] : 0.0;
        }
        const uint py = by * STRIDE + a - PAD, px = bx * STRIDE + b - PAD;  // may wrap around
        if (py < h && px < w) dx.v[((n * h + py) * w + px) * c + ch] = sum;
      }
  }
}
#else
void main() {
  const uint k = CHANNEL, py = gl_WorkGroupID.z + PAD;
  if (k >= w * c) return;
  const uint px = k / c + PAD, ch = k % c;
  FOR_ROWS(n, batch, slices) {
    float sum = 0.0;
    for (uint i = 0; i < MOST; ++i)
      for (uint j = 0; j < MOST; ++j) {
        const uint oy = py / STRIDE + 1 + i - MOST, ox = px / STRIDE + 1 + j - MOST;  // may wrap around
        const uint ky = py - oy * STRIDE, kx = px - ox * STRIDE;
        const bool over = oy < oh && ox < ow && ky < WINDOW && kx < WINDOW;
        const uint o = over ? ((n * oh + oy) * ow + ox) * c + ch : 0;
        sum += over && winner.v[o] == ky * WINDOW + kx ? dy.v[o] : 0.0;
      }
    dx.v[(n * h + gl_WorkGroupID.z) * w * c + k] = sum;
  }
}
#endif
#else
void main() {
  const uint k = CHANNEL, oy = gl_WorkGroupID.z;
  if (k >= ow * c) return;
  const uint top = oy * STRIDE - PAD, left = k / c * STRIDE - PAD, ch = k % c;
  FOR_ROWS(n, batch, slices) {
    const uint o = (n * oh + oy) * ow * c + k;
#ifdef APART
    const uint won = winner.v[o];
    const float g = dy.v[o];
#else
    float best = 0.0;
    uint best_tap = ~0u;
#endif
    for (uint ky = 0; ky < WINDOW; ++ky)
      for (uint kx = 0; kx < WINDOW; ++kx) {
        const uint py = top + ky, px = left + kx, tap = ky * WINDOW + kx;
        const bool inside = PAD == 0 || (py < h && px < w);  // above and left they wrap around
        const uint at = inside ? ((n * h + py) * w + px) * c + ch : 0;
#ifdef APART
        if (inside) dx.v[at] = won == tap ? g : 0.0;
#else
        const float value = x.v[at];
        const bool better = inside && (best_tap == ~0u || value > best || IS_NAN(value));
        best = better ? value : best;
        best_tap = better ? tap : best_tap;
#endif
      }
#ifndef APART
    y.v[o] = best;
    winner.v[o] = best_tap;
#endif
  }
}
#endif
