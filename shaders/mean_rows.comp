#version 450
// y = sum of x over the valid rows / (sum of their weights, or their number); dx = dy / the same
// for valid rows, else 0. total[0] is the divisor; total[1] is the same except that no weight is 0.
// A row has `inner` elements.
// Bindings: forward 0 x [rows, inner], 1 weights, 2 y [1], 3 total [2], 4 step values;
// gradient 0 dy, 1 total, 2 dx, 3 step values. Dispatch: one row (forward), grid-stride (gradient).
//! variant mean_rows
//! variant mean_rows_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
#define PARAMS uint rows, inner, weighted;
#ifdef GRAD
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, dy) B(1, Floats, total) B(2, Floats, dx) B(3, Steps, now)
#include "interface.glsl"
void main() {
  const uint valid = min(now.v[0].valid_rows, rows) * inner;
  FOR_EACH(i, rows * inner) dx.v[i] = i < valid ? dy.v[0] / total.v[0] : 0.0;
}
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, weights) B(2, Floats, y) B(3, Floats, total) \
    B(4, Steps, now)
#include "interface.glsl"
#include "row.glsl"
void main() {
  const uint valid = min(now.v[0].valid_rows, rows) * inner;
  float sum = 0.0, weight = 0.0;
  FOR_LANES(i, valid) {
    sum += x.v[i];
    if (weighted != 0) weight += weights.v[i];
  }
  sum = row_sum(sum);
  weight = weighted != 0 ? row_sum(weight) : float(valid);
  // If there is nothing to learn from (an empty batch, all labels ignored), the mean is 0.
  if (LANE == 0) {
    const float divisor = weight > 0.0 || IS_NAN(weight) ? weight : 1.0;
    total.v[0] = divisor;
    total.v[1] = weight;
    y.v[0] = sum / divisor;
  }
}
#endif
