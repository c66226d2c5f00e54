#version 450
// y = max(x, 0), or its gradient dx = dy where y > 0, else 0.
// Bindings: forward 0 x, 1 y; gradient 0 y, 1 dy, 2 dx. Dispatch: grid-stride over count.
//! variant relu
//! variant relu_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#ifdef GRAD
#define BUFFERS(B) B(0, Floats, y) B(1, Floats, dy) B(2, Floats, dx)
#define PARAMS uint count;
#include "interface.glsl"
void main() {
  FOR_EACH(i, count) dx.v[i] = y.v[i] > 0.0 ? dy.v[i] : 0.0;
}
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#define PARAMS uint count;
#include "interface.glsl"
void main() {
  FOR_EACH(i, count) y.v[i] = max(x.v[i], 0.0);
}
#endif
