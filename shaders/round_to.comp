#version 450
// y = x rounded to a shorter format, to nearest with ties to even, for operands of mixed-precision
// products.
// Bindings: 0 x, 1 y. Dispatch: grid-stride over count.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kFormat = 1;  // ops::Precision: 1 bfloat16, 2 float16
#define BUFFERS(B) B(0, Uints, x) B(1, Uints, y)
#define PARAMS uint count;
#include "interface.glsl"
#include "rounding.glsl"

void main() {
  FOR_EACH(i, count) y.v[i] = kFormat == 1 ? to_bfloat16(x.v[i]) : to_float16(x.v[i]);
}
