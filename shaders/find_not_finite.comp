#version 450
// found[place] = 1 where an element of x is NaN or infinite. Bindings: 0 x, 1 found. Dispatch: grid-stride over count.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Uints, x) B(1, Floats, found)
#define PARAMS uint count, place;
#include "interface.glsl"

void main() {
  bool finite = true;
  FOR_EACH(i, count) finite = finite && IS_FINITE(x.v[i]);
  if (!finite) found.v[place] = 1.0;
}
