#version 450
// out[b, j, i] = in[b, i, j] for in [batch, rows, columns]. Lanes own neighbouring i and walk along
// j. So writes are contiguous, and the cache lines that the lanes read stay until they are used up.
// Bindings: 0 in, 1 out. Dispatch: channels (i) by slices of columns by batch.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#define PARAMS uint rows, columns, slices;
#include "interface.glsl"

void main() {
  const uint i = CHANNEL, b = gl_WorkGroupID.z * rows * columns;
  if (i >= rows) return;
  FOR_ROWS(j, columns, slices) y.v[b + j * rows + i] = x.v[b + i * columns + j];
}
