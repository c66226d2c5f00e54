#version 450
// y += x: sums the gradients of a value with several users.
// Bindings: 0 x, 1 y. Dispatch: grid-stride over count.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#define PARAMS uint count;
#include "interface.glsl"

void main() {
  FOR_EACH(i, count) y.v[i] += x.v[i];
}
