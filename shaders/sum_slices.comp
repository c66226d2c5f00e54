#version 450
// out[i] = sum over z of in[z, i], in the order of z: the second pass of split reductions
// (where a GPU has few sums: column_sum), so that sums are bitwise the same from run to run.
// Bindings: 0 in [slices, count], 1 out [count]. Dispatch: grid-stride over count.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#define PARAMS uint slices, count;
#include "interface.glsl"

void main() {
  FOR_EACH(i, count) {
    float sum = 0.0;
#ifdef BY_ADDRESS
    for (uint z = 0; z < slices; ++z) sum += x.v[z * count + i];
#else  // eight loads on their way at once
    for (uint z = 0; z < slices; z += 8) {
      float x_[8];
      [[unroll]] for (uint j = 0; j < 8; ++j) x_[j] = x.v[min(z + j, slices - 1) * count + i];
      [[unroll]] for (uint j = 0; j < 8; ++j) sum += z + j < slices ? x_[j] : 0.0;
    }
#endif
    y.v[i] = sum;
  }
}
