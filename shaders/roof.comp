#version 450
// Measures the device's peak rate for profiles: eight independent chains of multiply-adds in each
// invocation. Writing y keeps the compiler from removing them. 2 * 32 * count operations per
// invocation.
// Bindings: 0 y [invocations]. Dispatch: one invocation each.
#extension GL_GOOGLE_include_directive : require
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
