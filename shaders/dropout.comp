#version 450
// y = x / (1 - rate) where kept, else 0 (inverted dropout, Srivastava et al. 2014). The mask is a
// pure function of (seed, step, layer, element): the gradient applies the same shader to dy.
// Bindings: 0 x, 1 y, 2 step values. Dispatch: grid-stride over ceil(count / 4).
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y) B(2, Steps, now)
#define PARAMS uint count, layer; float rate;
#include "interface.glsl"
#include "philox.glsl"

void main() {
  FOR_EACH(i, (count + 3) / 4) {
    const StepValues at = now.v[0];
    const uvec4 draw =
        philox(uvec4(i, at.step, layer, 0x64726F70u), uvec2(at.seed_lo, at.seed_hi));
    for (uint j = 0; j < 4 && 4 * i + j < count; ++j) {
      const bool keep = float(draw[j] >> 8) * (1.0 / 16777216.0) >= rate;
      y.v[4 * i + j] = keep ? x.v[4 * i + j] / (1.0 - rate) : 0.0;
    }
  }
}
