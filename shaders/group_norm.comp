#version 450
// Group normalisation of x [n, pixels, c] (Wu and He 2018): each sample's channels form groups of
// `width`, and all pixels of a group share mean and variance.
// h = (x - mean) inv, m = pixels * width elements:
//   y = h gamma + beta,  inv = 1 / sqrt(var + epsilon)
//   dx = inv (g - mean(g) - h mean(g h)),  g = dy gamma,  dgamma = sum dy h,  dbeta = sum dy
// Variants: forward 0 x, 1 gamma, 2 beta, 3 y, 4 moments [n, groups, 2]; grad_x 0 x, 1 gamma, 2 dy,
// 3 moments, 4 dx; grad_sums 0 x, 1 dy, 2 moments, 3 partial [n, 2, c]: dgamma, dbeta of a sample.
// `width` is a constant so that finding an element's channel needs no division.
// Dispatch: a row for each (sample, group); grad_sums: channels by samples.
//! variant group_norm -DFORWARD
//! variant group_norm_grad_x -DGRAD_X
//! variant group_norm_grad_sums
#extension GL_GOOGLE_include_directive : require
#define PARAMS uint n, pixels, c; float epsilon;
layout(constant_id = 1) const uint width = 1;

#if defined(FORWARD) || defined(GRAD_X)
#ifdef FORWARD
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, gamma) B(2, Floats, beta) B(3, Floats, y) \
    B(4, Floats, moments)
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, gamma) B(2, Floats, dy) B(3, Floats, moments) \
    B(4, Floats, dx)
#endif
#include "interface.glsl"
#include "row.glsl"

void main() {
  const uint groups = c / width, count = pixels * width;
  FOR_GROUPS(r, n * groups) {
    const uint first = r % groups * width, base = r / groups * pixels * c + first;
#define AT(k) (base + (k) / width * c + (k) % width)
#ifdef FORWARD
    float mean = 0.0, squares = 0.0;
    FOR_LANES(k, count) mean += x.v[AT(k)];
    mean = row_sum(mean) / float(count);
    FOR_LANES(k, count) squares += (x.v[AT(k)] - mean) * (x.v[AT(k)] - mean);
    const float inv = inversesqrt(row_sum(squares) / float(count) + epsilon);
    FOR_LANES(k, count)
      y.v[AT(k)] = (x.v[AT(k)] - mean) * inv * gamma.v[first + k % width] +
                   beta.v[first + k % width];
    if (LANE == 0) {
      moments.v[2 * r] = mean;
      moments.v[2 * r + 1] = inv;
    }
#else
    const float mean = moments.v[2 * r], inv = moments.v[2 * r + 1];
    float sum = 0.0, sum_h = 0.0;
    FOR_LANES(k, count) {
      const float g = dy.v[AT(k)] * gamma.v[first + k % width];
      sum += g;
      sum_h += g * (x.v[AT(k)] - mean);
    }
    const float shift = row_sum(sum) / float(count);
    const float slope = row_sum(sum_h) * inv / float(count);
    FOR_LANES(k, count)
      dx.v[AT(k)] = inv * (dy.v[AT(k)] * gamma.v[first + k % width] - shift -
                           (x.v[AT(k)] - mean) * inv * slope);
#endif
  }
}
#else
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, dy) B(2, Floats, moments) B(3, Floats, partial)
#include "interface.glsl"
void main() {
  const uint ch = CHANNEL, sample_ = gl_WorkGroupID.y;
  if (ch >= c) return;
  const uint at = 2 * (sample_ * (c / width) + ch / width);
  const float mean = moments.v[at], inv = moments.v[at + 1];
  float sum = 0.0, sum_h = 0.0;
#define ADD_PIXEL(p)                                  \
  {                                                   \
    const uint i = (sample_ * pixels + (p)) * c + ch; \
    sum += dy.v[i];                                   \
    sum_h += dy.v[i] * (x.v[i] - mean);               \
  }
  uint p = 0;
  for (; p + 8 <= pixels; p += 8) {
    [[unroll]] for (uint j = 0; j < 8; ++j) ADD_PIXEL(p + j)
  }
  for (; p < pixels; ++p) ADD_PIXEL(p)
  partial.v[(2 * sample_) * c + ch] = sum_h * inv;
  partial.v[(2 * sample_ + 1) * c + ch] = sum;
}
#endif
