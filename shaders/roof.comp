#version 450
// Measures the device's peak rates for profiles.
//
// Arithmetic: eight independent chains of multiply-adds in each invocation, 2 * 32 * count operations.
// Writing y keeps the compiler from removing them. Bindings: 0 y [invocations]. Dispatch: one
// invocation each.
//
// Memory (copy): y = x. Bindings: 0 x, 1 y. Dispatch: grid-stride over count vectors.
//! variant roof
//! variant roof_copy -DCOPY
#extension GL_GOOGLE_include_directive : require
#ifdef COPY
layout(local_size_x = 256) in;
#define BUFFERS(B) B(0, Vectors, x) B(1, Vectors, y)
#define PARAMS uint count;
#include "interface.glsl"

void main() {
  FOR_EACH(i, count) y.v[i] = x.v[i];
}
#else
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, y)
#define PARAMS uint count; float scale;
#include "interface.glsl"

void main() {
  const uint i = gl_GlobalInvocationID.x;
  vec4 a[8];
  for (uint k = 0; k < 8; ++k) a[k] = vec4(i + k) * scale;
  for (uint n = 0; n < count; ++n)
    for (uint k = 0; k < 8; ++k) a[k] = a[k] * scale + 0.5;
  vec4 sum = vec4(0);
  for (uint k = 0; k < 8; ++k) sum += a[k];
  y.v[i] = sum.x + sum.y + sum.z + sum.w;
}
#endif
