#version 450
// Per row: loss = mean over k of f(x_k, t_k), dx_k = f'(x_k, t_k) / columns * dloss.
// With d = x - t:
//   kind 0  squared error            f = d^2
//   kind 1  absolute error           f = |d|
//   kind 2  Huber (1964)             f = d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2)
//   kind 3  binary cross-entropy     f = max(x, 0) - x t + log(1 + exp(-|x|)): x is a logit, t in [0, 1]
// Bindings: forward 0 x, 1 target, 2 loss [rows]; gradient 0 x, 1 target, 2 dloss, 3 dx. Dispatch:
// rows.
//! variant pointwise_loss
//! variant pointwise_loss_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
layout(constant_id = 1) const uint kind = 0;
#ifdef GRAD
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, t) B(2, Floats, dloss) B(3, Floats, dx)
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, t) B(2, Floats, loss)
#endif
#define PARAMS uint rows, columns; float delta;
#include "interface.glsl"
#include "row.glsl"

float f(float xk, float tk) {
  const float d = xk - tk;
  if (kind == 0) return d * d;
  if (kind == 1) return abs(d);
  if (kind == 2) return abs(d) <= delta ? 0.5 * d * d : delta * (abs(d) - 0.5 * delta);
  return relu_of(xk) - xk * tk + log(1.0 + exp(-abs(xk)));
}

float slope(float xk, float tk) {
  const float d = xk - tk;
  if (kind == 0) return 2.0 * d;
  if (kind == 1) return sign(d);
  if (kind == 2) return limited(d, -delta, delta);
  return 1.0 / (1.0 + exp_of(-xk)) - tk;
}

void main() {
  FOR_GROUPS(r, rows) {
    const uint base = r * columns;
#ifdef GRAD
    FOR_LANES(k, columns)
      dx.v[base + k] = slope(x.v[base + k], t.v[base + k]) / float(columns) * dloss.v[r];
#else
    float sum = 0.0;
    FOR_LANES(k, columns) sum += f(x.v[base + k], t.v[base + k]);
    sum = row_sum(sum);
    if (LANE == 0) loss.v[r] = sum / float(columns);
#endif
  }
}
