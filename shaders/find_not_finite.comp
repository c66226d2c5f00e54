#version 450
// found[place] = 1 if an element of x is NaN or infinite.
// Bindings: 0 x, 1 found. Dispatch: grid-stride over count.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Uints, x) B(1, Floats, found)
#define PARAMS uint count, place;
#include "interface.glsl"

void main() {
  uint largest = 0;
  FOR_EACH(i, count) largest = max(largest, MAGNITUDE_BITS(x.v[i]));
  if (!IS_FINITE(largest)) found.v[place] = 1.0;
}
