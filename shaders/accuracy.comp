#version 450
// hit[r] = 1 where the largest logit of row r is its label (the first of equals wins), else 0.
// Bindings: 0 logits [rows, classes], 1 labels, 2 hit [rows]. Dispatch: grid-stride over rows.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Ints, labels) B(2, Floats, hit)
#define PARAMS uint rows, classes;
#include "interface.glsl"

void main() {
  FOR_EACH(r, rows) {
    uint best = 0;
    for (uint k = 1; k < classes; ++k)
      if (x.v[r * classes + k] > x.v[r * classes + best]) best = k;
    hit.v[r] = int(best) == labels.v[r] ? 1.0 : 0.0;
  }
}
