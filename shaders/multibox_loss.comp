#version 450
// The loss of a detector (Liu et al. 2016, section 2.2), one value for each anchor. A row of x is
//   [background, class 0, class 1, ...; dx, dy, dw, dh; the anchor's centre x, centre y, width, height]
// and for the box g = (left, top, right, bottom) that the anchor is to find
//   loss = cross-entropy of the classes + sum over i of smooth_l1(d_i - t_i)
//   t = ((g_x - a_x) / (0.1 a_w), (g_y - a_y) / (0.1 a_h), log(g_w / a_w) / 0.2, log(g_h / a_h) / 0.2)
// Of the anchors without a box, only the hardest of each sample count, `negatives` times as many as
// anchors with a box. Their loss is the cross-entropy of background.
//   entropy  the cross-entropy of every anchor
//   pick     (bits, last): a background anchor counts if its cross-entropy is above bits, or equal
//            and its number is at most last
// A label beyond the classes gives NaN, so that it is noticed.
// Bindings: 0 x [N, A, columns], 1 boxes [N, M, 5], 2 match [N, A] (box_match.comp), 3 entropy [N,
// A], 4 picked [N, 2], 5 y [N, A] (grad: dy), 6 grad: dx. Dispatch: pick: rows; others grid-stride
// over N * A.
//! variant multibox_entropy -DENTROPY
//! variant multibox_pick -DPICK
//! variant multibox_loss
//! variant multibox_loss_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
#ifdef PICK
#define BUFFERS(B) B(0, Floats, match) B(1, Floats, entropy) B(2, Uints, picked)
#else
layout(local_size_x = 64) in;
#if defined(ENTROPY)
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, boxes) B(2, Floats, match) B(3, Floats, entropy)
#elif defined(GRAD)
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, boxes) B(2, Floats, match) B(3, Floats, entropy) \
    B(4, Uints, picked) B(5, Floats, dy) B(6, Floats, dx)
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, boxes) B(2, Floats, match) B(3, Floats, entropy) \
    B(4, Uints, picked) B(5, Floats, y)
#endif
#endif
#define PARAMS uint samples, anchors, columns, most; float negatives;
#include "interface.glsl"

#ifdef PICK
#include "row.glsl"
bool is_background(uint r) { return match.v[r] == 0.0; }

// Returns how many of the sample's background anchors have at least these bits. Losses are not
// negative, so their bits order them.
float count_from(uint first, uint bits) {
  float count = 0.0;
  FOR_LANES(a, anchors)
    if (is_background(first + a) && floatBitsToUint(entropy.v[first + a]) >= bits) count += 1.0;
  return row_sum(count);
}

void main() {
  FOR_GROUPS(n, samples) {
    const uint first = n * anchors;
    float background = 0.0;
    FOR_LANES(a, anchors) if (is_background(first + a)) background += 1.0;
    background = row_sum(background);
    const float wanted = min(floor(negatives * (float(anchors) - background)), background);
    uint bits = 0x7F7FFFFFu, last = 0;  // no finite one
    if (wanted > 0.0) {
      // The largest bits that enough anchors reach.
      bits = 0;
      for (uint bit = 0x80000000u; bit != 0; bit >>= 1)
        if (count_from(first, bits | bit) >= wanted) bits |= bit;
      // Of those with exactly these bits, the first ones, until there are enough.
      const float missing = wanted - count_from(first, bits + 1);
      uint end = anchors;
      while (last < end) {
        const uint middle = (last + end) / 2;
        float count = 0.0;
        FOR_LANES(a, middle + 1)
          if (is_background(first + a) && floatBitsToUint(entropy.v[first + a]) == bits) count += 1.0;
        if (row_sum(count) >= missing)
          end = middle;
        else
          last = middle + 1;
      }
    }
    if (LANE == 0) {
      picked.v[2 * n] = bits;
      picked.v[2 * n + 1] = last;
    }
  }
}
#else
#define CLASSES (columns - 8)  // with background

float box(uint r, uint i) {
  return boxes.v[5 * (r / anchors * most + uint(match.v[r]) - 1) + i];
}

// Returns the column of the anchor's class.
uint label_of(uint r) { return match.v[r] > 0.0 ? uint(box(r, 0)) + 1 : 0; }

float largest(uint r) {
  float top = x.v[r * columns];
  for (uint k = 1; k < CLASSES; ++k) top = max(top, x.v[r * columns + k]);
  return top;
}

float sum_exp(uint r, float top) {
  float sum = 0.0;
  for (uint k = 0; k < CLASSES; ++k) sum += exp_of(x.v[r * columns + k] - top);
  return sum;
}

// Returns the target of the row's offsets.
vec4 offsets(uint r) {
  const uint at = r * columns + columns - 4;
  const vec2 centre = vec2(x.v[at], x.v[at + 1]), size = vec2(x.v[at + 2], x.v[at + 3]);
  const vec2 low = vec2(box(r, 1), box(r, 2)), high = vec2(box(r, 3), box(r, 4));
  return vec4((0.5 * (low + high) - centre) / (0.1 * size), log((high - low) / size) / 0.2);
}

vec4 errors(uint r) {
  const uint at = r * columns + CLASSES;
  return vec4(x.v[at], x.v[at + 1], x.v[at + 2], x.v[at + 3]) - offsets(r);
}

#ifdef ENTROPY
void main() {
  FOR_EACH(r, samples * anchors) {
    const uint label = label_of(r);
    const float top = largest(r);
    const float loss = log_of(sum_exp(r, top)) + top - x.v[r * columns + min(label, CLASSES - 1)];
    entropy.v[r] = label < CLASSES ? relu_of(loss) : NOT_A_NUMBER;
  }
}
#else
bool is_picked(uint r) {
  const uint n = r / anchors, bits = floatBitsToUint(entropy.v[r]), least = picked.v[2 * n];
  return match.v[r] == 0.0 && (bits > least || (bits == least && r % anchors <= picked.v[2 * n + 1]));
}

void main() {
  FOR_EACH(r, samples * anchors) {
    const bool found = match.v[r] > 0.0;
#ifdef GRAD
    const uint row = r * columns;
    const float slope = found || is_picked(r) ? dy.v[r] : 0.0;
    const float top = largest(r), sum = sum_exp(r, top);
    const uint label = label_of(r);
    for (uint k = 0; k < CLASSES; ++k)
      dx.v[row + k] = (exp(x.v[row + k] - top) / sum - (k == label ? 1.0 : 0.0)) * slope;
    const vec4 wrong = found ? errors(r) : vec4(0);
    for (uint i = 0; i < 4; ++i) {
      dx.v[row + CLASSES + i] = limited(wrong[i], -1.0, 1.0) * slope;
      dx.v[row + CLASSES + 4 + i] = 0.0;
    }
#else
    float loss = found || is_picked(r) ? entropy.v[r] : 0.0;
    if (found) {
      const vec4 d = abs(errors(r));
      loss += dot(mix(d - 0.5, 0.5 * d * d, lessThan(d, vec4(1))), vec4(1));
    }
    y.v[r] = loss;
#endif
  }
}
#endif
#endif
