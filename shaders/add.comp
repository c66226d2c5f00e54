#version 450
// y += x: sums the gradients of a value with several users.
// Bindings: 0 x, 1 y. Dispatch: grid-stride over count.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#define PARAMS uint count;
#include "interface.glsl"

void main() {
#ifdef BY_ADDRESS
  FOR_EACH(i, count) y.v[i] += x.v[i];
#else
  FOR_EACH_FOUR(i, count) {
    float x_[4], y_[4];
    OF_FOUR(j) x_[j] = x.v[FOURTH(i, j, count)], y_[j] = y.v[FOURTH(i, j, count)];
    OF_FOUR(j) if (HAS_FOURTH(i, j, count)) y.v[FOURTH(i, j, count)] = y_[j] + x_[j];
  }
#endif
}
