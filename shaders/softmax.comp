#version 450
// Over rows of [rows, length], with m the row's maximum and s = sum exp(x - m):
//   softmax       y = exp(x - m) / s            dx = y (dy - sum dy y)
//   log-softmax   y = x - m - log s             dx = dy - exp(y) sum dy
// Bindings: forward 0 x, 1 y; gradient 0 y, 1 dy, 2 dx. Dispatch: rows.
//! variant softmax
//! variant softmax_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
#ifdef GRAD
#define BUFFERS(B) B(0, Floats, y) B(1, Floats, dy) B(2, Floats, dx)
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#endif
#define PARAMS uint rows, length, logarithm;
#include "interface.glsl"
#include "row.glsl"

void main() {
  FOR_GROUPS(r, rows) {
    const uint base = r * length;
#ifdef GRAD
    float sum = 0.0;
    FOR_LANES(k, length) sum += dy.v[base + k] * (logarithm != 0 ? 1.0 : y.v[base + k]);
    sum = row_sum(sum);
    FOR_LANES(k, length) {
      const float yk = y.v[base + k], g = dy.v[base + k];
      dx.v[base + k] = logarithm != 0 ? g - exp(yk) * sum : yk * (g - sum);
    }
#else
    float top = x.v[base], sum = 0.0;
    FOR_LANES(k, length) top = max(top, x.v[base + k]);
    top = row_max(top);
    FOR_LANES(k, length) sum += exp_of(x.v[base + k] - top);
    sum = row_sum(sum);
    const float shift = top + log_of(sum), scale = 1.0 / sum;
    FOR_LANES(k, length)
      y.v[base + k] = logarithm != 0 ? x.v[base + k] - shift : exp(x.v[base + k] - top) * scale;
#endif
  }
}
