#version 450
// y[r, y_offset + i] = x[r, x_offset + i] for i < count, with rows of x_stride and y_stride
// elements, for concat and slice. If x has fewer rows (x_rows), they are repeated.
// Bindings: 0 x, 1 y. Dispatch: channels (i) by slices of rows.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
layout(constant_id = 1) const uint kRepeat = 0;
#define PARAMS uint rows, count, slices, x_rows; uint x_stride, x_offset, y_stride, y_offset;
#include "interface.glsl"

void main() {
  const uint i = CHANNEL;
  if (i >= count) return;
  FOR_ROWS(r, rows, slices)
    y.v[r * y_stride + y_offset + i] = x.v[(kRepeat != 0 ? r % x_rows : r) * x_stride + x_offset + i];
}
