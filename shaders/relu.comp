#version 450
// y = max(x, 0), or its gradient dx = dy where y > 0, else 0.
// Bindings: forward 0 x, 1 y; gradient 0 y, 1 dy, 2 dx. Dispatch: grid-stride over count.
//! variant relu
//! variant relu_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { uint count; };
#ifdef GRAD
layout(binding = 0, std430) readonly buffer Y { float y[]; };
layout(binding = 1, std430) readonly buffer Dy { float dy[]; };
layout(binding = 2, std430) writeonly buffer Dx { float dx[]; };
void main() {
  FOR_EACH(i, count) dx[i] = y[i] > 0.0 ? dy[i] : 0.0;
}
#else
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) writeonly buffer Y { float y[]; };
void main() {
  FOR_EACH(i, count) y[i] = max(x[i], 0.0);
}
#endif
