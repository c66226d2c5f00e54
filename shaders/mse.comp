#version 450
// Per row: loss = mean over k of (x_k - t_k)^2; dx_k = 2 (x_k - t_k) / columns * dloss.
// Bindings: forward 0 x, 1 target, 2 loss [rows]; gradient 0 x, 1 target, 2 dloss, 3 dx.
// Dispatch: grid-stride over rows (forward) or rows * columns (gradient).
//! variant mse
//! variant mse_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#ifdef GRAD
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, t) B(2, Floats, dloss) B(3, Floats, dx)
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, t) B(2, Floats, loss)
#endif
#define PARAMS uint rows, columns;
#include "interface.glsl"

#ifdef GRAD
void main() {
  FOR_EACH(i, rows * columns)
    dx.v[i] = 2.0 * (x.v[i] - t.v[i]) / float(columns) * dloss.v[i / columns];
}
#else
void main() {
  FOR_EACH(r, rows) {
    float sum = 0.0;
    for (uint k = 0; k < columns; ++k) {
      const float d = x.v[r * columns + k] - t.v[r * columns + k];
      sum += d * d;
    }
    loss.v[r] = sum / float(columns);
  }
}
#endif
