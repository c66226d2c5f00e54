#version 450
// y += x: sums gradients where a value has several users.
// Bindings: 0 x, 1 y. Dispatch: grid-stride over count.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint count; };

void main() {
  FOR_EACH(i, count) y[i] += x[i];
}
