#version 450
// Measures the device's peak rates for profiles.
//
// Arithmetic: sixteen independent chains of multiply-adds in each invocation, 2 * 128 * count
// operations. An iteration takes eight steps, because lavapipe keeps what a loop changes behind a
// mask, which costs an instruction each. Writing y keeps the compiler from removing the operations.
// Bindings: 0 y [invocations]. Dispatch: one invocation each.
//
// Memory (copy): y = x. Bindings: 0 x, 1 y. Dispatch: grid-stride over count vectors.
//! variant roof
//! variant roof_copy -DCOPY
#extension GL_EXT_control_flow_attributes : require
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
  vec4 a[4];
  [[unroll]] for (uint k = 0; k < 4; ++k) a[k] = vec4(i + k) * scale;
  for (uint n = 0; n < count; ++n)
    [[unroll]] for (uint step = 0; step < 8; ++step)
      [[unroll]] for (uint k = 0; k < 4; ++k) a[k] = a[k] * scale + 0.5;
  const vec4 sum = a[0] + a[1] + a[2] + a[3];
  y.v[i] = sum.x + sum.y + sum.z + sum.w;
}
#endif
