#version 450
// y = f(x) element by element, or its gradient dx = f'(x) dy. `kind` chooses f.
// Formulas: elementwise.glsl.
// Bindings: forward 0 x, 1 y; gradient 0 x, 1 y, 2 dy, 3 dx. Dispatch: grid-stride over count.
//! variant unary
//! variant unary_grad -DGRAD
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kind = 0;
#ifdef GRAD
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y) B(2, Floats, dy) B(3, Floats, dx)
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#endif
#define PARAMS uint count; float alpha;
#include "interface.glsl"
#include "elementwise.glsl"

void main() {
#if defined(BY_ADDRESS) && defined(GRAD)
  FOR_EACH(i, count) dx.v[i] = unary_slope(kind, alpha, x.v[i], y.v[i]) * dy.v[i];
#elif defined(BY_ADDRESS)
  FOR_EACH(i, count) y.v[i] = unary(kind, alpha, x.v[i]);
#elif defined(GRAD)
  FOR_EACH_FOUR(i, count) {
    float x_[4], y_[4], dy_[4];
    OF_FOUR(j) {
      const uint at = FOURTH(i, j, count);
      x_[j] = x.v[at], y_[j] = y.v[at], dy_[j] = dy.v[at];
    }
    OF_FOUR(j) if (HAS_FOURTH(i, j, count))
      dx.v[FOURTH(i, j, count)] = unary_slope(kind, alpha, x_[j], y_[j]) * dy_[j];
  }
#else
  FOR_EACH_FOUR(i, count) {
    float x_[4];
    OF_FOUR(j) x_[j] = x.v[FOURTH(i, j, count)];
    OF_FOUR(j) if (HAS_FOURTH(i, j, count)) y.v[FOURTH(i, j, count)] = unary(kind, alpha, x_[j]);
  }
#endif
}
