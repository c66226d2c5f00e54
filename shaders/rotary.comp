#version 450
// Rotary position embedding (Su et al. 2021): in each of the first heads of a row, the elements i
// and i + HEAD / 2 are a pair that is turned by the angle of position t and pair i.
//   forward   y_i = x_i cos - x_j sin,  y_j = x_j cos + x_i sin   with j = i + HEAD / 2
//   gradient  the same with -sin: dx from dy
// Elements of a row behind the first `rotated` are copied. table is [positions, HEAD]: cosines, then
// sines. Bindings: 0 x, 1 table, 2 y (gradient: dy, table, dx).
// Dispatch: channels by slices of rows (batch * positions).
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint HEAD = 4;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, table) B(2, Floats, y)
#define PARAMS uint rows, channels, slices, positions, rotated; float direction;
#include "interface.glsl"

void main() {
  const uint ch = CHANNEL;
  if (ch >= channels) return;
  const uint half_head = HEAD / 2, i = ch % HEAD, pair = i % half_head;
  const bool first = i < half_head, turns = ch < rotated;
  const uint other = turns ? (first ? ch + half_head : ch - half_head) : ch;
  const float sign = first ? -direction : direction;
  FOR_ROWS(r, rows, slices) {
    const float own = x.v[r * channels + ch];
    const uint at = r % positions * HEAD + pair;
    const float turned =
        own * table.v[at] + sign * x.v[r * channels + other] * table.v[at + half_head];
    y.v[r * channels + ch] = turns ? turned : own;
  }
}
