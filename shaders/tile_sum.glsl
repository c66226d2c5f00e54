// For kernels that sum the rows of channels on a GPU: a workgroup of gl_WorkGroupSize.x channels by
// STREAMS rows. An invocation takes every STREAMS-th row of its slice, AT_ONCE of them per
// iteration: only loads that do not wait for one another keep the memory busy. The streams' sums
// are then added in shared memory, in a fixed order, so that they are bitwise the same from run to
// run. Include it after interface.glsl, and only #ifndef BY_ADDRESS.
//   FOR_TILE_ROWS(r, rows, slices) {
//     FOR_AT_ONCE(i) x_[i] = x.v[TILE_ROW(r, i) * c + ch];
//     FOR_AT_ONCE(i) sum += IN_SLICE(r, i) ? x_[i] : 0.0;
//   }
//   total = tile_sum(sum);
// All invocations must reach tile_sum(): those past the last channel take TILE_CHANNEL and write
// nothing (WRITES).
// Dispatch: ops::SumTile.
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x_id = 0, local_size_y_id = 1) in;

#define AT_ONCE 8
#define STREAM gl_LocalInvocationID.y
#define STREAMS gl_WorkGroupSize.y
#define TILE_CHANNEL(channels) min(gl_GlobalInvocationID.x, (channels) - 1)
#define WRITES(channels) (STREAM == 0 && gl_GlobalInvocationID.x < (channels))

#define FOR_TILE_ROWS(r, row_count, slice_count)                                 \
  for (uint per_ = ((row_count) + (slice_count) - 1) / (slice_count),            \
            begin_ = gl_WorkGroupID.y * per_, end_ = min(begin_ + per_, (row_count)), \
            r = begin_ + STREAM;                                                 \
       r < end_; r += AT_ONCE * STREAMS)
#define FOR_AT_ONCE(i) [[unroll]] for (uint i = 0; i < AT_ONCE; ++i)
#define IN_SLICE(r, i) ((r) + (i) * STREAMS < end_)
#define TILE_ROW(r, i) min((r) + (i) * STREAMS, end_ - 1)

shared float tile_[gl_WorkGroupSize.x * gl_WorkGroupSize.y];

float tile_sum(float v) {
  const uint at = gl_LocalInvocationIndex;
  barrier();
  tile_[at] = v;
  barrier();
  for (uint half_ = STREAMS / 2; half_ > 0; half_ /= 2) {
    if (STREAM < half_) tile_[at] += tile_[at + half_ * gl_WorkGroupSize.x];
    barrier();
  }
  return tile_[gl_LocalInvocationID.x];
}
