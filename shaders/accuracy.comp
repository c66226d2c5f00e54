#version 450
// hit[r] = 1 where the largest logit of row r is its label (the first of equals wins), else 0.
// Bindings: 0 logits [rows, classes], 1 labels, 2 hit [rows]. Dispatch: grid-stride over rows.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer Labels { int labels[]; };
layout(binding = 2, std430) writeonly buffer Hit { float hit[]; };
layout(push_constant) uniform Push { uint rows, classes; };

void main() {
  FOR_EACH(r, rows) {
    uint best = 0;
    for (uint k = 1; k < classes; ++k)
      if (x[r * classes + k] > x[r * classes + best]) best = k;
    hit[r] = int(best) == labels[r] ? 1.0 : 0.0;
  }
}
