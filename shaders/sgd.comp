#version 450
// Stochastic gradient descent over all parameters at once (they lie in one buffer):
//   g = grad + weight_decay * w          (the first `decayed` parameters only)
//   v = momentum * v + g                 (Polyak 1964)
//   w = w - lr * v                       plain momentum
//   w = w - lr * (g + momentum * v)      Nesterov (Sutskever et al. 2013)
// With momentum 0 there is no v and w = w - lr * g.
// Bindings: 0 w, 1 grad, 2 v, 3 step values. Dispatch: grid-stride over count.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(binding = 0, std430) buffer W { float w[]; };
layout(binding = 1, std430) readonly buffer Grad { float grad[]; };
layout(binding = 2, std430) buffer V { float v[]; };
layout(binding = 3, std430) readonly buffer Step { StepValues now; };
layout(push_constant) uniform Push {
  uint count, decayed, nesterov;
  float momentum, weight_decay;
};

void main() {
  FOR_EACH(i, count) {
    const float g = grad[i] + (i < decayed ? weight_decay * w[i] : 0.0);
    float direction = g;
    if (momentum != 0.0) {
      const float velocity = momentum * v[i] + g;
      v[i] = velocity;
      direction = nesterov != 0 ? g + momentum * velocity : velocity;
    }
    w[i] -= now.learning_rate * direction;
  }
}
