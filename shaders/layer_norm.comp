#version 450
// Layer normalisation over the last axis of [rows, c] (Ba et al. 2016), or, with `rms`, its root
// mean square form without mean and beta (Zhang and Sennrich 2019). h = (x - mean) * inv:
//   y = h gamma (+ beta),  inv = 1 / sqrt(var + epsilon)
//   dx = inv (g - mean(g) - h mean(g h)),  g = dy gamma    (rms: without mean(g))
//   dgamma = sum dy h,  dbeta = sum dy                      over the rows
// Variants: forward 0 x, 1 gamma, 2 beta, 3 y, 4 moments [rows, 2]; grad_x 0 x, 1 gamma, 2 dy, 3
// moments, 4 dx; grad_sums 0 x, 1 dy, 2 moments, 3 partial [slices, 2, c]: dgamma, dbeta of a slice
// of rows.
// Dispatch: rows; grad_sums: channels by slices of rows, on a GPU ops::SumTile.
//! variant layer_norm -DFORWARD
//! variant layer_norm_grad_x -DGRAD_X
//! variant layer_norm_grad_sums
#extension GL_GOOGLE_include_directive : require
#define PARAMS uint rows, c, slices, rms; float epsilon;

#if defined(FORWARD)
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, gamma) B(2, Floats, beta) B(3, Floats, y) \
    B(4, Floats, moments)
#include "interface.glsl"
#include "row.glsl"
void main() {
  FOR_GROUPS(r, rows) {
    const uint base = r * c;
    float mean = 0.0, squares = 0.0;
    if (rms == 0) {
      FOR_LANES(k, c) mean += x.v[base + k];
      mean = row_sum(mean) / float(c);
    }
    FOR_LANES(k, c) squares += (x.v[base + k] - mean) * (x.v[base + k] - mean);
    const float inv = inversesqrt(row_sum(squares) / float(c) + epsilon);
    FOR_LANES(k, c)
      y.v[base + k] = (x.v[base + k] - mean) * inv * gamma.v[k] + (rms == 0 ? beta.v[k] : 0.0);
    if (LANE == 0) {
      moments.v[2 * r] = mean;
      moments.v[2 * r + 1] = inv;
    }
  }
}
#elif defined(GRAD_X)
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, gamma) B(2, Floats, dy) B(3, Floats, moments) \
    B(4, Floats, dx)
#include "interface.glsl"
#include "row.glsl"
void main() {
  FOR_GROUPS(r, rows) {
    const uint base = r * c;
    const float mean = moments.v[2 * r], inv = moments.v[2 * r + 1];
    float sum = 0.0, sum_h = 0.0;
    FOR_LANES(k, c) {
      const float g = dy.v[base + k] * gamma.v[k];
      sum += g;
      sum_h += g * (x.v[base + k] - mean);
    }
    const float shift = rms == 0 ? row_sum(sum) / float(c) : 0.0;
    const float slope = row_sum(sum_h) * inv / float(c);
    FOR_LANES(k, c)
      dx.v[base + k] = inv * (dy.v[base + k] * gamma.v[k] - shift -
                              (x.v[base + k] - mean) * inv * slope);
  }
}
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, dy) B(2, Floats, moments) B(3, Floats, partial)
#include "interface.glsl"
#ifdef BY_ADDRESS
layout(local_size_x_id = 0) in;
void main() {
  const uint ch = CHANNEL, z = gl_WorkGroupID.y;
  if (ch >= c) return;
  float sum = 0.0, sum_h = 0.0;
  FOR_ROWS(r, rows, slices) {
    const float g = dy.v[r * c + ch];
    sum += g;
    sum_h += g * (x.v[r * c + ch] - moments.v[2 * r]) * moments.v[2 * r + 1];
  }
  partial.v[(2 * z) * c + ch] = sum_h;
  partial.v[(2 * z + 1) * c + ch] = sum;
}
#else
#include "tile_sum.glsl"
void main() {
  const uint ch = TILE_CHANNEL(c), z = gl_WorkGroupID.y;
  float sum = 0.0, sum_h = 0.0;
  FOR_TILE_ROWS(r, rows, slices) {
    float x_[AT_ONCE], dy_[AT_ONCE], mean_[AT_ONCE], inv_[AT_ONCE];
    FOR_AT_ONCE(i) {
      const uint row = TILE_ROW(r, i), at = row * c + ch;
      x_[i] = x.v[at];
      dy_[i] = dy.v[at];
      mean_[i] = moments.v[2 * row];
      inv_[i] = moments.v[2 * row + 1];
    }
    FOR_AT_ONCE(i) {
      sum += IN_SLICE(r, i) ? dy_[i] : 0.0;
      sum_h += IN_SLICE(r, i) ? dy_[i] * (x_[i] - mean_[i]) * inv_[i] : 0.0;
    }
  }
  sum_h = tile_sum(sum_h);
  sum = tile_sum(sum);
  if (WRITES(c)) {
    partial.v[(2 * z) * c + ch] = sum_h;
    partial.v[(2 * z + 1) * c + ch] = sum;
  }
}
#endif
#endif
