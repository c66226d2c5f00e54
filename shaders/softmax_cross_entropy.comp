#version 450
// Per row of logits [rows, classes] with integer label t and smoothing s (Szegedy et al. 2016):
//   loss = log sum exp(x) - sum_k q_k x_k,  q_k = (1 - s) [k = t] + s / classes
//   dx_k = (softmax(x)_k - q_k) * dloss
// A label outside [0, classes) makes the row's loss NaN, so that it is seen.
// Bindings: forward 0 logits, 1 labels, 2 loss [rows]; gradient 0 logits, 1 labels, 2 dloss, 3 dx.
// Dispatch: grid-stride over rows.
//! variant softmax_cross_entropy
//! variant softmax_cross_entropy_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#ifdef GRAD
#define BUFFERS(B) B(0, Floats, x) B(1, Ints, labels) B(2, Floats, dloss) B(3, Floats, dx)
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Ints, labels) B(2, Floats, loss)
#endif
#define PARAMS uint rows, classes; float smoothing;
#include "interface.glsl"

void main() {
  FOR_EACH(r, rows) {
    const uint base = r * classes;
    float top = x.v[base];
    for (uint k = 1; k < classes; ++k) top = max(top, x.v[base + k]);
    float sum = 0.0, total = 0.0;
    for (uint k = 0; k < classes; ++k) {
      sum += exp(x.v[base + k] - top);
      total += x.v[base + k];
    }
    const int t = labels.v[r];
#ifdef GRAD
    for (uint k = 0; k < classes; ++k) {
      const float q = (int(k) == t ? 1.0 - smoothing : 0.0) + smoothing / float(classes);
      dx.v[base + k] = (exp(x.v[base + k] - top) / sum - q) * dloss.v[r];
    }
#else
    const bool valid = t >= 0 && t < int(classes);
    const float aimed = (1.0 - smoothing) * x.v[base + (valid ? t : 0)] +
                        smoothing / float(classes) * total;
    loss.v[r] = valid ? log(sum) + top - aimed : uintBitsToFloat(0x7FC00000u);
#endif
  }
}
