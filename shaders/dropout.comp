#version 450
// y = x / (1 - rate) where kept, else 0 (inverted dropout, Srivastava et al. 2014). The mask is a
// pure function of (seed, step, layer, element of the batch of all ranks): the gradient applies the
// same shader to dy.
// Bindings: 0 x, 1 y, 2 step values. Dispatch: grid-stride over ceil(count / 4) + 1: a draw serves
// four elements, and a rank's first one may be any of them. In a slice of the last axis
// (dropout_slice) each element finds its draw by its place in the whole tensor: grid-stride over
// count.
//! variant dropout
//! variant dropout_slice -DSLICE
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y) B(2, Steps, now)
#ifdef SLICE
#define PARAMS uint count, layer; float rate; uint width, begin, length;
#else
#define PARAMS uint count, layer; float rate;
#endif
#include "interface.glsl"
#include "philox.glsl"

#ifdef SLICE
void main() {
  const StepValues at = now.v[0];
  const uint first_row = at.first_row * (count / length / at.rows);
  FOR_EACH(i, count) {
    const uint e = (first_row + i / length) * width + begin + i % length;
    const uvec4 draw =
        philox(uvec4(e / 4, at.step, layer, 0x64726F70u), uvec2(at.seed_lo, at.seed_hi));
    const bool keep = float(draw[e % 4] >> 8) * (1.0 / 16777216.0) >= rate;
    y.v[i] = keep ? x.v[i] / (1.0 - rate) : 0.0;
  }
}
#else
void main() {
  const StepValues at = now.v[0];
  const uint first = at.first_row * (count / at.rows), skipped = first % 4;
  FOR_EACH(i, (count + skipped + 3) / 4) {
    const uvec4 draw =
        philox(uvec4(first / 4 + i, at.step, layer, 0x64726F70u), uvec2(at.seed_lo, at.seed_hi));
    for (uint j = i == 0 ? skipped : 0; j < 4 && 4 * i + j - skipped < count; ++j) {
      const uint e = 4 * i + j - skipped;
      const bool keep = float(draw[j] >> 8) * (1.0 / 16777216.0) >= rate;
      y.v[e] = keep ? x.v[e] / (1.0 - rate) : 0.0;
    }
  }
}
#endif
