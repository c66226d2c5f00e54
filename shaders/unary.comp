#version 450
// y = f(x) element by element, or its gradient dx = f'(x) dy. `kind` chooses f.
// Formulas: elementwise.glsl.
// Bindings: forward 0 x, 1 y; gradient 0 x, 1 y, 2 dy, 3 dx. Dispatch: grid-stride over count.
//! variant unary
//! variant unary_grad -DGRAD
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
#ifdef GRAD
  FOR_EACH(i, count) dx.v[i] = unary_slope(kind, alpha, x.v[i], y.v[i]) * dy.v[i];
#else
  FOR_EACH(i, count) y.v[i] = unary(kind, alpha, x.v[i]);
#endif
}
