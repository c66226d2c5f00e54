#version 450
// out[b, j, i] = in[b, i, j] for in [batch, rows, columns].
// Bindings: 0 in, 1 out. Dispatch: grid-stride over batch * rows * columns.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#define PARAMS uint batch, rows, columns;
#include "interface.glsl"

void main() {
  FOR_EACH(i, batch * rows * columns) {
    const uint r = i % rows, c = i / rows % columns, b = i / (rows * columns);
    y.v[i] = x.v[(b * rows + r) * columns + c];
  }
}
