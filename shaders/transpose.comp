#version 450
// out[b, j, i] = in[b, i, j] for in [batch, rows, columns].
// Bindings: 0 in, 1 out. Dispatch: grid-stride over batch * rows * columns.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(binding = 0, std430) readonly buffer In { float x[]; };
layout(binding = 1, std430) writeonly buffer Out { float y[]; };
layout(push_constant) uniform Push { uint batch, rows, columns; };

void main() {
  FOR_EACH(i, batch * rows * columns) {
    const uint r = i % rows, c = i / rows % columns, b = i / (rows * columns);
    y[i] = x[(b * rows + r) * columns + c];
  }
}
