#version 450
// Batch normalisation over the rows of x [rows, c] (Ioffe and Szegedy 2015), optionally with ReLU:
//   y = gamma * (x - mean) * inv_std + beta,  inv_std = 1 / sqrt(var + eps)
// Training takes mean and (biased) variance of the batch and moves the running ones towards them,
//   running = momentum * running + (1 - momentum) * batch   (variance unbiased;
//   a batch that is not finite is skipped);
// evaluation uses the running ones. With g = dy (masked by y > 0 under ReLU) and
// h = (x - mean) * inv_std:
//   dbeta = sum g,  dgamma = sum g * h,  dx = gamma * inv_std * (g - (dbeta + h * dgamma) / rows)
//
// Stages, each a variant:
//   stats     partial mean and sum of squared deviations of a slice of rows
//             (0 x, 1 partial [slices, 2, c])
//   merge     combines the slices' moments (Chan et al. 1979) and updates the running values. The
//             product that computes x may have found them, for each of several parts of the rows
//             (0 partial [slices, 2, parts, c], 1 moments [2, c]: mean, inv_std, 2 running mean, 3 running var)
//   join      mean and variance of all slices, to be combined with those of other ranks
//             (0 partial [slices, 2, parts, c], 1 joined [2 c + 1]: mean, variance, 1)
//   finish    moments from what the ranks have combined; updates the running values
//             (0 joined [2 c + 1]: mean, variance, all rows / this rank's rows, 1 moments [2, c],
//             2 running mean, 3 running var)
//   fixed     moments from the running values (0 running mean, 1 running var, 2 moments)
//   apply     y (0 x, 1 moments, 2 gamma, 3 beta, 4 y)
//   grad_sums partial sums of g and g * h (0 x, 1 dy, 2 moments, 3 gamma, 4 beta, 5 partial [slices, 2, c];
//             on a CPU device [slices, parts, 2, c], from x and dy as [rows, parts * c], in pairs if kPairs)
//   grad_x    dx (0 x, 1 dy, 2 moments, 3 gamma, 4 beta, 5 sums [2, c], 6 dx)
// Dispatch: channels by slices of rows (stats and grad_sums on a GPU: ops::SumTile); merge, join: a
// row for each channel; fixed, finish: grid-stride over c.
//
// Each pass over x is bound by memory, so none reads it twice, and y > 0 is recomputed from x. Four
// rows per iteration hide the loop overhead. On a GPU an iteration reads all its rows before it
// computes: loads that wait for one another use a fraction of the memory's bandwidth.
//
//! variant batch_norm_stats -DSTATS
//! variant batch_norm_merge -DMERGE
//! variant batch_norm_join -DMERGE -DJOIN
//! variant batch_norm_finish -DFINISH
//! variant batch_norm_fixed -DFIXED
//! variant batch_norm_apply -DAPPLY
//! variant batch_norm_grad_sums -DGRAD_SUMS
//! variant batch_norm_grad_x -DGRAD_X

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#if defined(GRAD_SUMS) && defined(BY_ADDRESS)
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#endif
#define PARAMS uint rows, c, slices, relu; float epsilon, momentum; uint slice_rows, parts;

// Iterates over the rows of this workgroup's slice by fours; r is the first of four. ROW(i) is the
// i-th, or the slice's last row if HAS(i) is false.
#define FOR_FOUR_ROWS(r)                                                                                   \
  for (uint per_ = (rows + slices - 1) / slices, r = gl_WorkGroupID.y * per_, end_ = min(r + per_, rows); \
       r < end_; r += 4)
#define ROW(i) min(r + i, end_ - 1)
#define HAS(i) (r + i < end_)
// Reads the four rows of a buffer at once; LOADED(b, i, at) is the i-th, at b.v[at].
#ifdef BY_ADDRESS
#define LOAD_ROWS(b)
#define LOADED(b, i, at) b.v[at]
#else
#define LOAD_ROWS(b) \
  float b##_[4];     \
  [[unroll]] for (uint i = 0; i < 4; ++i) b##_[i] = b.v[ROW(i) * c + ch];
#define LOADED(b, i, at) b##_[i]
#endif

#if defined(STATS)
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, partial)
#include "interface.glsl"
#ifdef BY_ADDRESS
layout(local_size_x_id = 0) in;
void main() {
  const uint ch = CHANNEL, z = gl_WorkGroupID.y;
  if (ch >= c) return;
  float mean = 0.0, squares = 0.0, count = 0.0;
  FOR_FOUR_ROWS(r) {  // merges the moments of four rows into those so far (Chan et al. 1979)
    float x_[4], some = 0.0, sum = 0.0, deviations = 0.0;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      x_[i] = x.v[ROW(i) * c + ch];
      some += HAS(i) ? 1.0 : 0.0;
      sum += HAS(i) ? x_[i] : 0.0;
    }
    const float middle = sum / some;
    [[unroll]] for (uint i = 0; i < 4; ++i)
      deviations += HAS(i) ? (x_[i] - middle) * (x_[i] - middle) : 0.0;
    const float total = count + some, d = middle - mean;
    squares += deviations + d * d * (count * some / total);
    mean += d * (some / total);
    count = total;
  }
  partial.v[(2 * z) * c + ch] = mean;
  partial.v[(2 * z + 1) * c + ch] = squares;
}
#else
#include "tile_sum.glsl"
void main() {
  const uint ch = TILE_CHANNEL(c), z = gl_WorkGroupID.y;
  float mean = 0.0, squares = 0.0, count = 0.0;
  FOR_TILE_ROWS(r, rows, slices) {
    float x_[AT_ONCE], some = 0.0, sum = 0.0, deviations = 0.0;
    FOR_AT_ONCE(i) x_[i] = x.v[TILE_ROW(r, i) * c + ch];
    FOR_AT_ONCE(i) {
      some += IN_SLICE(r, i) ? 1.0 : 0.0;
      sum += IN_SLICE(r, i) ? x_[i] : 0.0;
    }
    const float middle = sum / some;
    FOR_AT_ONCE(i) deviations += IN_SLICE(r, i) ? (x_[i] - middle) * (x_[i] - middle) : 0.0;
    const float total = count + some, d = middle - mean;
    squares += deviations + d * d * (count * some / total);
    mean += d * (some / total);
    count = total;
  }
  const float all = max(tile_sum(count), 1.0), joint = tile_sum(count * mean) / all, d = mean - joint;
  squares = tile_sum(squares + (count > 0.0 ? count * (d * d) : 0.0));  // d * d may be infinite
  if (WRITES(c)) {
    partial.v[(2 * z) * c + ch] = joint;
    partial.v[(2 * z + 1) * c + ch] = squares;
  }
}
#endif
#elif defined(MERGE)
#ifdef JOIN
#define BUFFERS(B) B(0, Floats, partial) B(1, Floats, joined)
#else
#define BUFFERS(B) B(0, Floats, partial) B(1, Floats, moments) B(2, Floats, running_mean) \
    B(3, Floats, running_var)
#endif
#include "interface.glsl"
#include "row.glsl"
layout(constant_id = 1) const bool kOnePart = false;  // parts == 1: no divisions
// Place of piece k's mean, and the number of its rows. Its squares follow `parts` rows of c later.
#define SLICE(k) (kOnePart ? (k) : (k) / parts)
#define PLACE(k) (kOnePart ? 2 * (k) : (k) / parts * 2 * parts + (k) % parts) * c
#define ROWS(k) float(min(slice_rows, rows - SLICE(k) * slice_rows))
#define FOR_EIGHT_PIECES(k) for (uint k = LANE; k < pieces; k += 8 * gl_WorkGroupSize.x)
#define OF_EIGHT(i) [[unroll]] for (uint i = 0; i < 8; ++i)
#define IS_PIECE(k, i) ((k) + (i) * gl_WorkGroupSize.x < pieces)
#define PIECE(k, i) min((k) + (i) * gl_WorkGroupSize.x, pieces - 1)
void main() {
  const uint pieces = (rows + slice_rows - 1) / slice_rows * parts;
  const float n = float(rows) * float(parts);
  FOR_GROUPS(ch, c) {
    float sum = 0.0, squares = 0.0;
#ifdef BY_ADDRESS
    FOR_LANES(k, pieces) sum += ROWS(k) * partial.v[PLACE(k) + ch];
    const float mean = row_sum(sum) / n;
    FOR_LANES(k, pieces) {
      const float d = partial.v[PLACE(k) + ch] - mean;
      squares += partial.v[PLACE(k) + parts * c + ch] + ROWS(k) * (d * d);
    }
#else  // eight loads on their way at once
    float mean_[8], squares_[8];
    FOR_EIGHT_PIECES(k) {
      OF_EIGHT(i) mean_[i] = partial.v[PLACE(PIECE(k, i)) + ch];
      OF_EIGHT(i) sum += IS_PIECE(k, i) ? ROWS(PIECE(k, i)) * mean_[i] : 0.0;
    }
    const float mean = row_sum(sum) / n;
    FOR_EIGHT_PIECES(k) {
      OF_EIGHT(i) {
        mean_[i] = partial.v[PLACE(PIECE(k, i)) + ch];
        squares_[i] = partial.v[PLACE(PIECE(k, i)) + parts * c + ch];
      }
      OF_EIGHT(i) {
        const float d = mean_[i] - mean;
        squares += IS_PIECE(k, i) ? squares_[i] + ROWS(PIECE(k, i)) * (d * d) : 0.0;
      }
    }
#endif
    squares = row_sum(squares);
#ifdef JOIN
    if (LANE == 0) {
      joined.v[ch] = mean;
      joined.v[c + ch] = squares / n;
      if (ch == 0) joined.v[2 * c] = 1.0;
    }
#else
    if (LANE == 0) {
      moments.v[ch] = mean;
      moments.v[c + ch] = inversesqrt(squares / n + epsilon);
      // A NaN would stay in the running values forever.
      if (IS_FINITE(floatBitsToUint(mean)) && IS_FINITE(floatBitsToUint(squares))) {
        running_mean.v[ch] = momentum * running_mean.v[ch] + (1.0 - momentum) * mean;
        running_var.v[ch] = momentum * running_var.v[ch] + (1.0 - momentum) * squares / max(n - 1.0, 1.0);
      }
    }
#endif
  }
}
#elif defined(FINISH)
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, joined) B(1, Floats, moments) B(2, Floats, running_mean) \
    B(3, Floats, running_var)
#include "interface.glsl"
void main() {
  const float n = float(rows) * joined.v[2 * c], unbiased = n / max(n - 1.0, 1.0);
  FOR_EACH(ch, c) {
    const float mean = joined.v[ch], var = joined.v[c + ch];
    moments.v[ch] = mean;
    moments.v[c + ch] = inversesqrt(var + epsilon);
    if (IS_FINITE(floatBitsToUint(mean)) && IS_FINITE(floatBitsToUint(var))) {
      running_mean.v[ch] = momentum * running_mean.v[ch] + (1.0 - momentum) * mean;
      running_var.v[ch] = momentum * running_var.v[ch] + (1.0 - momentum) * (var * unbiased);
    }
  }
}
#elif defined(FIXED)
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, running_mean) B(1, Floats, running_var) B(2, Floats, moments)
#include "interface.glsl"
void main() {
  FOR_EACH(ch, c) {
    moments.v[ch] = running_mean.v[ch];
    moments.v[c + ch] = inversesqrt(running_var.v[ch] + epsilon);
  }
}
#elif defined(APPLY)
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, moments) B(2, Floats, gamma) B(3, Floats, beta) \
    B(4, Floats, y)
#include "interface.glsl"
#include "elementwise.glsl"
void main() {
  const uint ch = CHANNEL;
  if (ch >= c) return;
  const float mean = moments.v[ch], inv_std = moments.v[c + ch];
  const float scale = gamma.v[ch], shift = beta.v[ch];
  FOR_FOUR_ROWS(r) {
    LOAD_ROWS(x)
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      const float value = batch_norm(LOADED(x, i, ROW(i) * c + ch), mean, inv_std, scale, shift);
      y.v[ROW(i) * c + ch] = relu != 0 ? relu_of(value) : value;
    }
  }
}
#elif defined(GRAD_SUMS)
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, dy) B(2, Floats, moments) B(3, Floats, gamma) \
    B(4, Floats, beta) B(5, Floats, partial)
#include "interface.glsl"
#ifdef BY_ADDRESS
#include "pair.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool kPairs = false;
vec2 load(Floats of, uint at) { return kPairs ? pair(of, at) : vec2(of.v[at], 0.0); }
void main() {
  const uint wide = parts * c, column = (kPairs ? 2 : 1) * CHANNEL, z = gl_WorkGroupID.y;
  if (column >= wide) return;
  const uvec2 ch = uvec2(column, column + 1) % c;
  const vec2 mean = vec2(moments.v[ch.x], moments.v[ch.y]);
  const vec2 inv_std = vec2(moments.v[c + ch.x], moments.v[c + ch.y]);
  const vec2 scale = vec2(gamma.v[ch.x], gamma.v[ch.y]) * inv_std;
  const vec2 shift = vec2(beta.v[ch.x], beta.v[ch.y]);
  vec2 sum = vec2(0.0), sum_h = vec2(0.0);
  FOR_FOUR_ROWS(r)
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      const uint at = ROW(i) * wide + column;
      const vec2 h = load(x, at) - mean, dy_ = load(dy, at);
      [[unroll]] for (uint j = 0; j < 2; ++j) {
        const float g = !HAS(i) || (relu != 0 && h[j] * scale[j] + shift[j] <= 0.0) ? 0.0 : dy_[j];
        sum[j] += g;
        sum_h[j] += g * h[j];
      }
    }
  sum_h *= inv_std;
  [[unroll]] for (uint j = 0; j < (kPairs ? 2 : 1); ++j) {
    const uint part = z * parts + (column + j) / c;
    partial.v[2 * part * c + ch[j]] = sum[j];
    partial.v[(2 * part + 1) * c + ch[j]] = sum_h[j];
  }
}
#else
#include "tile_sum.glsl"
void main() {
  const uint ch = TILE_CHANNEL(c), z = gl_WorkGroupID.y;
  const float mean = moments.v[ch], inv_std = moments.v[c + ch];
  const float scale = gamma.v[ch] * inv_std, shift = beta.v[ch];
  float sum = 0.0, sum_h = 0.0;
  FOR_TILE_ROWS(r, rows, slices) {
    float x_[AT_ONCE], dy_[AT_ONCE];
    FOR_AT_ONCE(i) {
      const uint at = TILE_ROW(r, i) * c + ch;
      x_[i] = x.v[at];
      dy_[i] = dy.v[at];
    }
    FOR_AT_ONCE(i) {
      const float h = x_[i] - mean;
      const float g = !IN_SLICE(r, i) || (relu != 0 && h * scale + shift <= 0.0) ? 0.0 : dy_[i];
      sum += g;
      sum_h += g * h;
    }
  }
  sum = tile_sum(sum);
  sum_h = tile_sum(sum_h);
  if (WRITES(c)) {
    partial.v[(2 * z) * c + ch] = sum;
    partial.v[(2 * z + 1) * c + ch] = sum_h * inv_std;
  }
}
#endif
#else
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, dy) B(2, Floats, moments) B(3, Floats, gamma) \
    B(4, Floats, beta) B(5, Floats, sums) B(6, Floats, dx)
#include "interface.glsl"
#include "elementwise.glsl"
void main() {
  const uint ch = CHANNEL;
  if (ch >= c) return;
  const float mean = moments.v[ch], inv_std = moments.v[c + ch];
  const float scale = gamma.v[ch], shift = beta.v[ch];
  const float sum_g = sums.v[ch], sum_gh = sums.v[c + ch];
  FOR_FOUR_ROWS(r) {
    LOAD_ROWS(x)
    LOAD_ROWS(dy)
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      const uint at = ROW(i) * c + ch;
      const float y = batch_norm(LOADED(x, i, at), mean, inv_std, scale, shift);
      const float g = relu != 0 ? relu_grad(y, LOADED(dy, i, at)) : LOADED(dy, i, at);
      dx.v[at] = batch_norm_dx(LOADED(x, i, at), g, mean, inv_std, scale, sum_g, sum_gh, float(rows));
    }
  }
}
#endif
