#version 450
// dx = dy, 0 where y = 0: the gradient after a fused ReLU, from its result.
// Bindings: 0 y, 1 dy, 2 dx. Dispatch: grid-stride over count.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, y) B(1, Floats, dy) B(2, Floats, dx)
#define PARAMS uint count;
#include "interface.glsl"

void main() {
  FOR_EACH(i, count) dx.v[i] = relu_grad(y.v[i], dy.v[i]);
}
