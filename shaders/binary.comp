#version 450
// y = f(a, b) with broadcasting, or the gradients of a and b before they are summed over the
// broadcast axes. Tensors are viewed as [d0, d1, d2, d3] with the last axis over the lanes; a
// stride of 0 repeats.
//   `kind` chooses f: elementwise.glsl.
// Bindings: forward 0 a, 1 b, 2 y; gradients 0 a, 1 b, 2 dy, 3 result. Dispatch: channels (d3) by
// slices of rows. Equal shapes need no such view: `binary_same`, grid-stride over count.
//! variant binary
//! variant binary_same -DSAME
//! variant binary_grad_a -DGRAD_A
//! variant binary_grad_b -DGRAD_B
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#ifdef SAME
layout(local_size_x = 64) in;
#else
layout(local_size_x_id = 0) in;
#endif
layout(constant_id = 1) const uint kind = 0;
layout(constant_id = 2) const uint relu = 0;  // forward: of the result
#if defined(GRAD_A) || defined(GRAD_B)
#define BUFFERS(B) B(0, Floats, a) B(1, Floats, b) B(2, Floats, dy) B(3, Floats, y)
#else
#define BUFFERS(B) B(0, Floats, a) B(1, Floats, b) B(2, Floats, y)
#endif
#define PARAMS uint rows, d1, d2, d3, slices, count; uint a0, a1, a2, a3, b0, b1, b2, b3;
#include "interface.glsl"

#include "elementwise.glsl"

float forward(float u, float v) {
  const float y = binary(kind, u, v);
  return relu != 0 ? relu_of(y) : y;
}

#if defined(SAME) && defined(BY_ADDRESS)
void main() { FOR_EACH(i, count) y.v[i] = forward(a.v[i], b.v[i]); }
#elif defined(SAME)
void main() {
  FOR_EACH_FOUR(i, count) {
    float a_[4], b_[4];
    OF_FOUR(j) a_[j] = a.v[FOURTH(i, j, count)], b_[j] = b.v[FOURTH(i, j, count)];
    OF_FOUR(j) if (HAS_FOURTH(i, j, count)) y.v[FOURTH(i, j, count)] = forward(a_[j], b_[j]);
  }
}
#else
void main() {
  const uint ch = CHANNEL;
  if (ch >= d3) return;
  FOR_ROWS(r, rows, slices) {
    if (r * d3 + ch >= count) return;  // the last row may be incomplete
    const uint i2 = r % d2, i1 = r / d2 % d1, i0 = r / (d2 * d1);
    const float u = a.v[i0 * a0 + i1 * a1 + i2 * a2 + ch * a3];
    const float v = b.v[i0 * b0 + i1 * b1 + i2 * b2 + ch * b3];
#if defined(GRAD_A)
    y.v[r * d3 + ch] = binary_slope_a(kind, u, v) * dy.v[r * d3 + ch];
#elif defined(GRAD_B)
    y.v[r * d3 + ch] = binary_slope_b(kind, u, v) * dy.v[r * d3 + ch];
#else
    y.v[r * d3 + ch] = forward(u, v);
#endif
  }
}
#endif
