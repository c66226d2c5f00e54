#version 450
// y[r, k] = w[id[r], k]. An id outside the table gives NaN, so that it is noticed.
// The table may be the slice of a larger one, of `all` entries, that begins at `first`: ids of
// other slices give 0. The gradient sums the rows of dy in the order of r, without atomics: `order`
// sorts the rows by id (stable, by counting), `begin` finds where each id's rows begin, `grad` sums
// them.
//   order  order[#(ids below id[r]) + #(equal ids before r)] = r     (0 ids, 1 order [rows])
//   begin  begin[v] = #(ids below first + v), v = 0 .. entries               (0 ids, 1 begin [entries + 1])
//   grad   dw[v] = sum of dy[order[i]], begin[v] <= i < begin[v + 1] (0 dy, 1 order, 2 begin, 3 dw)
// Dispatch: forward and grad: channels by rows of the output; order and begin: grid-stride.
//! variant embedding -DFORWARD
//! variant embedding_order -DORDER
//! variant embedding_begin -DBEGIN
//! variant embedding_grad
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
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Ints, ids) B(1, Uints, order)
#include "interface.glsl"
void main() {
  FOR_EACH(r, rows) {
    const int id = ids.v[r];
    uint place = 0;
    for (uint i = 0; i < rows; ++i) place += ids.v[i] < id || (ids.v[i] == id && i < r) ? 1 : 0;
    order.v[place] = r;
  }
}
#elif defined(BEGIN)
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Ints, ids) B(1, Uints, begin)
#include "interface.glsl"
void main() {
  FOR_EACH(v, entries + 1) {
    uint below = 0;
    for (uint i = 0; i < rows; ++i) below += ids.v[i] < int(first + v) ? 1 : 0;
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
