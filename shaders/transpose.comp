#version 450
// out[b, j, i] = in[b, i, j] for in [batch, rows, columns].
// A GPU moves tiles through shared memory, so that it reads and writes contiguous rows; a row of
// the tile is padded by an element, so that neighbours in a column lie in different banks.
// On CPU devices, and if one side is shorter than a tile (thin), lanes own neighbouring i and walk
// along j. So writes are contiguous, and the cache lines that the lanes read stay until they are
// used up.
// Bindings: 0 in, 1 out. Dispatch: tiles of columns by tiles of rows by batch; thin: channels (i)
// by slices of columns by batch.
//! variant transpose
//! variant transpose_thin -DTHIN
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#define PARAMS uint rows, columns, slices;
#include "interface.glsl"

#if defined(BY_ADDRESS) || defined(THIN)
layout(local_size_x_id = 0) in;
void main() {
  const uint i = CHANNEL, b = gl_WorkGroupID.z * rows * columns;
  if (i >= rows) return;
  FOR_ROWS(j, columns, slices) y.v[b + j * rows + i] = x.v[b + i * columns + j];
}
#else
#define TILE 32
#define HEIGHT 8  // rows of the tile that the workgroup moves at once
layout(local_size_x = TILE, local_size_y = HEIGHT) in;
shared float tile[TILE][TILE + 1];

void main() {
  const uint b = gl_WorkGroupID.z * rows * columns;
  const uint i0 = gl_WorkGroupID.y * TILE, j0 = gl_WorkGroupID.x * TILE;
  const uvec2 lane = gl_LocalInvocationID.xy;
  [[unroll]] for (uint k = 0; k < TILE; k += HEIGHT) {
    const uint i = min(i0 + lane.y + k, rows - 1), j = min(j0 + lane.x, columns - 1);
    tile[lane.y + k][lane.x] = x.v[b + i * columns + j];
  }
  barrier();
  [[unroll]] for (uint k = 0; k < TILE; k += HEIGHT) {
    const uint i = i0 + lane.x, j = j0 + lane.y + k;
    if (i < rows && j < columns) y.v[b + j * rows + i] = tile[lane.x][lane.y + k];
  }
}
#endif
