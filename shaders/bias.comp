#version 450
// y[r, c] = x[r, c] + b[c].
// Bindings: 0 x, 1 b, 2 y. Dispatch: grid-stride over count = rows * columns.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer B { float b[]; };
layout(binding = 2, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint count, columns; };

void main() {
  FOR_EACH(i, count) y[i] = x[i] + b[i % columns];
}
