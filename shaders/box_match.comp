#version 450
// Assigns to each anchor the box of its sample to find (Liu et al. 2016, section 2.2): the one that
// it overlaps most, if the overlap (intersection over union) reaches a threshold. In addition, the
// anchor that overlaps a box most finds that box, however small the overlap; of two such boxes the
// later one wins.
//   best   best[n, m] = the anchor that overlaps box m most; A where none does
//   match  match[n, a] = 1 + the number of the anchor's box; 0 for background
// x [N, A, columns] ends each row with the anchor (centre x, centre y, width, height); boxes [N, M,
// 5] are (label, left, top, right, bottom), no box where the label is negative. All are shares of
// the image.
// Bindings: 0 x, 1 boxes, 2 best [N, M], 3 match [N, A]. Dispatch: best: rows; match: grid-stride
// over N * A.
//! variant box_best -DBEST
//! variant box_match
#extension GL_GOOGLE_include_directive : require
#ifdef BEST
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, boxes) B(2, Ints, best)
#else
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, boxes) B(2, Ints, best) B(3, Floats, match)
#endif
#define PARAMS uint samples, anchors, columns, most; float overlap;
#include "interface.glsl"

// Returns the overlap of row r's anchor with box b, in 16 binary digits: two overlaps that are equal
// but for rounding tie, so the first wins on every device. 0 if there is no box b.
float overlap_of(uint r, uint b) {
  if (!(boxes.v[5 * b] >= 0.0)) return 0.0;
  const uint at = r * columns + columns - 4;
  const vec2 centre = vec2(x.v[at], x.v[at + 1]), half_size = 0.5 * vec2(x.v[at + 2], x.v[at + 3]);
  const vec2 low = vec2(boxes.v[5 * b + 1], boxes.v[5 * b + 2]);
  const vec2 high = vec2(boxes.v[5 * b + 3], boxes.v[5 * b + 4]);
  const vec2 shared_size = max(min(high, centre + half_size) - max(low, centre - half_size), vec2(0));
  const float both = shared_size.x * shared_size.y;
  const vec2 size = high - low;
  const float either = size.x * size.y + 4.0 * half_size.x * half_size.y - both;
  return both > 0.0 ? uintBitsToFloat((floatBitsToUint(both / either) + 0x80) & ~0xFFu) : 0.0;
}

#ifdef BEST
#include "row.glsl"
void main() {
  FOR_GROUPS(b, samples * most) {
    const uint first = b / most * anchors;
    float top = 0.0, found = 0.0;
    FOR_LANES(a, anchors) {
      const float value = overlap_of(first + a, b);
      if (value > top) {
        top = value;
        found = float(a);
      }
    }
    const float highest = row_max(top);
    // The first of equals: its negative index is the largest.
    const float number = -row_max(top == highest ? -found : -16777216.0);
    if (LANE == 0) best.v[b] = highest > 0.0 ? int(number) : int(anchors);
  }
}
#else
void main() {
  FOR_EACH(r, samples * anchors) {
    const uint n = r / anchors;
    float top = 0.0;
    uint found = 0;
    for (uint m = 0; m < most; ++m) {
      const float value = overlap_of(r, n * most + m);
      if (value > top) {
        top = value;
        found = m + 1;
      }
    }
    if (top < overlap) found = 0;
    for (uint m = 0; m < most; ++m)
      if (best.v[n * most + m] == int(r % anchors)) found = m + 1;
    match.v[r] = float(found);
  }
}
#endif
