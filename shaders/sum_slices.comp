#version 450
// out[i] = sum over z of in[z, i], in the order of z: the second pass of split reductions
// (where a GPU has few sums: column_sum), so that sums are bitwise the same from run to run.
// Bindings: 0 in [slices, count], 1 out [count]. Dispatch: grid-stride over count; on a CPU device
// with kPairs, over its pairs.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#ifdef BY_ADDRESS
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#endif
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#define PARAMS uint slices, count;
#include "interface.glsl"

#ifdef BY_ADDRESS
#include "pair.glsl"
layout(constant_id = 0) const bool kPairs = false;
void main() {
  FOR_EACH(i, kPairs ? count / 2 : count) {
    vec2 sum = vec2(0.0);
    for (uint z = 0; z < slices; ++z)
      sum += kPairs ? pair(x, z * count + 2 * i) : vec2(x.v[z * count + i], 0.0);
    if (kPairs)
      store_pair(y, 2 * i, sum);
    else
      y.v[i] = sum.x;
  }
}
#else
void main() {
  FOR_EACH(i, count) {
    float sum = 0.0;
    for (uint z = 0; z < slices; z += 8) {  // eight loads on their way at once
      float x_[8];
      [[unroll]] for (uint j = 0; j < 8; ++j) x_[j] = x.v[min(z + j, slices - 1) * count + i];
      [[unroll]] for (uint j = 0; j < 8; ++j) sum += z + j < slices ? x_[j] : 0.0;
    }
    y.v[i] = sum;
  }
}
#endif
