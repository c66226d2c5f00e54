#version 450
// y = x / (1 - rate) where kept, else 0 (inverted dropout, Srivastava et al. 2014). The mask is a
// pure function of (seed, step, layer, element): the gradient applies the same shader to dy.
// Bindings: 0 x, 1 y, 2 step values. Dispatch: grid-stride over ceil(count / 4).
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "philox.glsl"
layout(local_size_x = 64) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) writeonly buffer Y { float y[]; };
layout(binding = 2, std430) readonly buffer Step { StepValues now; };
layout(push_constant) uniform Push { uint count, layer; float rate; };

void main() {
  FOR_EACH(i, (count + 3) / 4) {
    const uvec4 draw = philox(uvec4(i, now.step, layer, 0x64726F70u), uvec2(now.seed_lo, now.seed_hi));
    for (uint j = 0; j < 4 && 4 * i + j < count; ++j) {
      const bool keep = float(draw[j] >> 8) * (1.0 / 16777216.0) >= rate;
      y[4 * i + j] = keep ? x[4 * i + j] / (1.0 - rate) : 0.0;
    }
  }
}
