#version 450
// dx = dy, 0 where y = 0: the gradient after a fused ReLU, from its result.
// Bindings: 0 y, 1 dy, 2 dx. Dispatch: grid-stride over count.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, y) B(1, Floats, dy) B(2, Floats, dx)
#define PARAMS uint count;
#include "interface.glsl"

void main() {
#ifdef BY_ADDRESS
  FOR_EACH(i, count) dx.v[i] = relu_grad(y.v[i], dy.v[i]);
#else
  FOR_EACH_FOUR(i, count) {
    float y_[4], dy_[4];
    OF_FOUR(j) y_[j] = y.v[FOURTH(i, j, count)], dy_[j] = dy.v[FOURTH(i, j, count)];
    OF_FOUR(j) if (HAS_FOURTH(i, j, count)) dx.v[FOURTH(i, j, count)] = relu_grad(y_[j], dy_[j]);
  }
#endif
}
