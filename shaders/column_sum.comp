#version 450
// out[z, c] = sum of x[r, c] over the rows r of slice z: the first pass of a bias gradient. On a
// GPU, in one slice, it is also the second.
// Bindings: 0 x [rows, columns], 1 out [slices, columns]; halves (one slice): 2 the first half of
// out, 3 the second. Dispatch: channels by slices of rows; on a GPU ops::SumTile.
//! variant column_sum
//! variant column_sum_halves -DHALVES
#extension GL_GOOGLE_include_directive : require
#ifdef HALVES
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y) B(2, Floats, first) B(3, Floats, second)
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#endif
#define PARAMS uint rows, columns, slices;
#include "interface.glsl"

void write_sum(uint c, float sum) {
  y.v[gl_WorkGroupID.y * columns + c] = sum;
#ifdef HALVES
  const uint middle = columns / 2;
  if (c < middle)
    first.v[c] = sum;
  else
    second.v[c - middle] = sum;
#endif
}

#ifdef BY_ADDRESS
layout(local_size_x_id = 0) in;
void main() {
  const uint c = CHANNEL;
  if (c >= columns) return;
  float sum = 0.0;
  FOR_ROWS(r, rows, slices) sum += x.v[r * columns + c];
  write_sum(c, sum);
}
#else
#include "tile_sum.glsl"
void main() {
  const uint c = TILE_CHANNEL(columns);
  float sum = 0.0;
  FOR_TILE_ROWS(r, rows, slices) {
    float x_[AT_ONCE];
    FOR_AT_ONCE(i) x_[i] = x.v[TILE_ROW(r, i) * columns + c];
    FOR_AT_ONCE(i) sum += IN_SLICE(r, i) ? x_[i] : 0.0;
  }
  sum = tile_sum(sum);
  if (WRITES(columns)) write_sum(c, sum);
}
#endif
