#version 450
// y[o, i] = sum, mean or maximum over k of x[o, k, i], with x viewed as [outer, length, inner].
//   sum, mean: dx = scale dy      maximum: dx = dy / (number of maxima) if x is one, else 0
// The maximum and the minimum are NaN if an x is NaN, and every such x counts as a maximum
// (minimum).
// `kind`: 0 sum and mean (times scale), 1 maximum, 2 minimum.
// Bindings: forward 0 x, 1 y; gradient 0 x, 1 y, 2 dy, 3 dx.
// Dispatch: `reduce_rows` (inner = 1) rows; `reduce` channels (inner) by outer, or by
// fewer workgroups, which take several.
//! variant reduce_rows -DROWS
//! variant reduce_rows_grad -DROWS -DGRAD
//! variant reduce
//! variant reduce_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
layout(constant_id = 1) const uint kind = 0;
#ifdef GRAD
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y) B(2, Floats, dy) B(3, Floats, dx)
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#endif
#define PARAMS uint outer, length, inner; float scale;
#include "interface.glsl"

float join(float sum, float v) { return kind == 0 ? sum + v : kind == 1 ? larger(sum, v) : smaller(sum, v); }
bool is_extreme(float v, float y) { return v == y || IS_NAN(v); }
float start(float first) { return kind == 0 ? 0.0 : first; }

#ifdef ROWS
#include "row.glsl"
void main() {
  FOR_GROUPS(r, outer) {
    const uint base = r * length;
#ifdef GRAD
    float ties = 0.0;
    if (kind != 0) {
      FOR_LANES(k, length) ties += is_extreme(x.v[base + k], y.v[r]) ? 1.0 : 0.0;
      ties = row_sum(ties);
    }
    const float g = kind == 0 ? dy.v[r] * scale : dy.v[r] / ties;
    FOR_LANES(k, length) dx.v[base + k] = kind == 0 || is_extreme(x.v[base + k], y.v[r]) ? g : 0.0;
#else
    float sum = start(x.v[base]);
    FOR_LANES(k, length) sum = join(sum, x.v[base + k]);
    const bool has_nan = kind != 0 && row_max(IS_NAN(sum) ? 1.0 : 0.0) > 0.0;
    sum = kind == 0 ? row_sum(sum) * scale : kind == 1 ? row_max(sum) : -row_max(-sum);
    if (has_nan) sum = NOT_A_NUMBER;
    if (LANE == 0) y.v[r] = sum;
#endif
  }
}
#else
layout(local_size_x_id = 0) in;
void main() {
  const uint i = CHANNEL;
  if (i >= inner) return;
  for (uint o = gl_WorkGroupID.y; o < outer; o += gl_NumWorkGroups.y) {
    const uint base = o * length * inner + i;
#ifdef GRAD
    const float at = y.v[o * inner + i];
    float ties = 0.0;
    if (kind != 0)
      for (uint k = 0; k < length; ++k) ties += is_extreme(x.v[base + k * inner], at) ? 1.0 : 0.0;
    const float g = kind == 0 ? dy.v[o * inner + i] * scale : dy.v[o * inner + i] / ties;
    for (uint k = 0; k < length; ++k)
      dx.v[base + k * inner] = kind == 0 || is_extreme(x.v[base + k * inner], at) ? g : 0.0;
#else
    float sum = start(x.v[base]);
    for (uint k = 0; k < length; ++k) sum = join(sum, x.v[base + k * inner]);
    y.v[o * inner + i] = kind == 0 ? sum * scale : sum;
#endif
  }
}
#endif
