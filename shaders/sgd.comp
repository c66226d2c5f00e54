#version 450
// Stochastic gradient descent over all parameters at once (they lie in one buffer):
//   g = grad + weight_decay * w          (the first `decayed` parameters only)
//   v = momentum * v + g                 (Polyak 1964)
//   w = w - lr * v                       plain momentum
//   w = w - lr * (g + momentum * v)      Nesterov (Sutskever et al. 2013)
// With momentum 0 there is no v and w = w - lr * g.
// Bindings: 0 w, 1 grad, 2 v, 3 step values. Dispatch: grid-stride over count.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, w) B(1, Floats, grad) B(2, Floats, v) B(3, Steps, now)
#define PARAMS uint count, decayed, nesterov; float momentum, weight_decay;
#include "interface.glsl"

void main() {
  FOR_EACH(i, count) {
    const float g = grad.v[i] + (i < decayed ? weight_decay * w.v[i] : 0.0);
    float direction = g;
    if (momentum != 0.0) {
      const float velocity = momentum * v.v[i] + g;
      v.v[i] = velocity;
      direction = nesterov != 0 ? g + momentum * velocity : velocity;
    }
    w.v[i] -= now.v[0].learning_rate * direction;
  }
}
