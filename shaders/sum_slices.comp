#version 450
// out[i] = sum over z of in[z, i], in the order of z: the second pass of every split reduction, so
// that sums are bitwise the same from run to run.
// Bindings: 0 in [slices, count], 1 out [count]. Dispatch: grid-stride over count.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(binding = 0, std430) readonly buffer In { float x[]; };
layout(binding = 1, std430) writeonly buffer Out { float y[]; };
layout(push_constant) uniform Push { uint slices, count; };

void main() {
  FOR_EACH(i, count) {
    float sum = 0.0;
    for (uint z = 0; z < slices; ++z) sum += x[z * count + i];
    y[i] = sum;
  }
}
