#version 450
// y[n, j, c] = x[n, id[n, j], c]: gathers rows of each sample. An id outside it gives NaN.
//   grad  dx[n, i, c] = sum of dy[n, j, c] over the j with id[n, j] = i, in their order (no atomics)
// Bindings: 0 x [N, rows, C] (grad: dy), 1 ids [N, picks], 2 y [N, picks, C] (grad: dx).
// Dispatch: channels by rows of what is written.
//! variant gather
//! variant gather_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Ints, ids) B(2, Floats, y)
#define PARAMS uint samples, rows, picks, c;
#include "interface.glsl"

void main() {
  const uint ch = CHANNEL;
  if (ch >= c) return;
#if defined(GRAD)
  for (uint r = gl_WorkGroupID.y; r < samples * rows; r += gl_NumWorkGroups.y) {
    const uint n = r / rows;
    float sum = 0.0;
    for (uint j = 0; j < picks; ++j)
      if (ids.v[n * picks + j] == int(r % rows)) sum += x.v[(n * picks + j) * c + ch];
    y.v[r * c + ch] = sum;
  }
#else
  for (uint r = gl_WorkGroupID.y; r < samples * picks; r += gl_NumWorkGroups.y) {
    const uint id = uint(ids.v[r]);
    y.v[r * c + ch] = id < rows ? x.v[(r / picks * rows + id) * c + ch] : NOT_A_NUMBER;
  }
#endif
}
