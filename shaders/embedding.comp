#version 450
// y[r, k] = w[id[r], k]. An id outside the table gives NaN, so that it is noticed.
// The table may be the slice of a larger one, of `all` entries, that begins at `first`: ids of
// other slices give 0. The gradient sums the rows of dy in the order of r, without atomics: `order`
// sorts the rows by id (stable, by counting), `begin` finds where each id's rows begin, `grad` sums
// them.
//   order  order[#(ids below id[r]) + #(equal ids before r)] = r     (0 ids, 1 order [rows])
//   begin  begin[v] = #(ids below first + v), v = 0 .. entries               (0 ids, 1 begin [entries + 1];
//          on a GPU, which searches the sorted rows, 0 ids, 1 order, 2 begin)
//   grad   dw[v] = sum of dy[order[i]], begin[v] <= i < begin[v + 1] (0 dy, 1 order, 2 begin, 3 dw)
// Dispatch: forward and grad: channels by rows of the output; order and begin: grid-stride; order
// on a GPU: a workgroup for each eight rows.
//! variant embedding -DFORWARD
//! variant embedding_order -DORDER
//! variant embedding_begin -DBEGIN
//! variant embedding_grad
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#define PARAMS uint rows, entries, c, first, all;

#if defined(FORWARD)
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, w) B(1, Ints, ids) B(2, Floats, y)
#include "interface.glsl"
void main() {
  const uint ch = CHANNEL;
  if (ch >= c) return;
  for (uint r = gl_WorkGroupID.y; r < rows; r += gl_NumWorkGroups.y) {
    const uint id = uint(ids.v[r]), own = id - first;
    y.v[r * c + ch] = own < entries ? w.v[own * c + ch] : id < all ? 0.0 : NOT_A_NUMBER;
  }
}
#elif defined(ORDER)
#define BUFFERS(B) B(0, Ints, ids) B(1, Uints, order)
#include "interface.glsl"
#ifdef BY_ADDRESS
layout(local_size_x = 64) in;
void main() {
  FOR_EACH(r, rows) {
    const int id = ids.v[r];
    uint place = 0;
    for (uint i = 0; i < rows; ++i) place += ids.v[i] < id || (ids.v[i] == id && i < r) ? 1 : 0;
    order.v[place] = r;
  }
}
#else
// The invocations share the ids to compare with and add what they counted for each of the eight.
layout(local_size_x = 256) in;
#define LANE gl_LocalInvocationID.x
#define OF_EIGHT(j) [[unroll]] for (uint j = 0; j < 8; ++j)
shared uint counted[8][gl_WorkGroupSize.x];

void main() {
  for (uint r = gl_WorkGroupID.x * 8; r < rows; r += gl_NumWorkGroups.x * 8) {
    int id[8];
    uint place[8];
    OF_EIGHT(j) id[j] = ids.v[min(r + j, rows - 1)], place[j] = 0;
    for (uint i = LANE; i < rows; i += gl_WorkGroupSize.x) {
      const int other = ids.v[i];
      OF_EIGHT(j) place[j] += other < id[j] || (other == id[j] && i < r + j) ? 1 : 0;
    }
    OF_EIGHT(j) counted[j][LANE] = place[j];
    barrier();
    for (uint half_ = gl_WorkGroupSize.x / 2; half_ > 0; half_ /= 2) {
      if (LANE < half_) OF_EIGHT(j) counted[j][LANE] += counted[j][LANE + half_];
      barrier();
    }
    if (LANE < 8 && r + LANE < rows) order.v[counted[LANE][0]] = r + LANE;
    barrier();
  }
}
#endif
#elif defined(BEGIN)
layout(local_size_x = 64) in;
#ifdef BY_ADDRESS
#define BUFFERS(B) B(0, Ints, ids) B(1, Uints, begin)
#else
#define BUFFERS(B) B(0, Ints, ids) B(1, Uints, order) B(2, Uints, begin)
#endif
#include "interface.glsl"
void main() {
  FOR_EACH(v, entries + 1) {
    uint below = 0;
#ifdef BY_ADDRESS
    for (uint i = 0; i < rows; ++i) below += ids.v[i] < int(first + v) ? 1 : 0;
#else
    for (uint end = rows; below < end;) {
      const uint middle = (below + end) / 2;
      const bool is_below = ids.v[order.v[middle]] < int(first + v);
      below = is_below ? middle + 1 : below;
      end = is_below ? end : middle;
    }
#endif
    begin.v[v] = below;
  }
}
#else
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, dy) B(1, Uints, order) B(2, Uints, begin) B(3, Floats, dw)
#include "interface.glsl"
void main() {
  const uint ch = CHANNEL;
  if (ch >= c) return;
  for (uint v = gl_WorkGroupID.y; v < entries; v += gl_NumWorkGroups.y) {
    float sum = 0.0;
    for (uint i = begin.v[v]; i < begin.v[v + 1]; ++i) sum += dy.v[order.v[i] * c + ch];
    dw.v[v * c + ch] = sum;
  }
}
#endif
