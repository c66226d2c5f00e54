#version 450
// One update of all parameters at once (they lie in one buffer). g is the gradient, r the learning
// rate, t the number of the update from 1, d the weight decay (of the first `decayed` parameters
// only).
//   SGD      g += d w;  m = a m + g (Polyak 1964);  w -= r m, or r (g + a m) (Nesterov; Sutskever et al. 2013)
//   ADAM     m = a m + (1 - a) g,  v = b v + (1 - b) g^2 (Kingma and Ba 2015)
//            w -= r m / (1 - a^t) / (sqrt(v / (1 - b^t)) + epsilon);  d is added to g, or, `decoupled`, w -= r d w
//            (AdamW; Loshchilov and Hutter 2019)
//   ADAGRAD  g += d w;  v += g^2 (Duchi et al. 2011);  w -= r g / (sqrt(v) + epsilon)
//   RMSPROP  g += d w;  v = b v + (1 - b) g^2 (Tieleman and Hinton 2012);  g /= sqrt(v) + epsilon
//            w -= r g, or, with momentum,  m = a m + g,  w -= r m
//   LION     w -= r (sign(a m + (1 - a) g) + d w);  m = b m + (1 - b) g (Chen et al. 2023)
// a, b and d come from the step's values. So do 1 - a, 1 - b (rest_) and the logarithms, which
// would lose precision if computed from floats near 1.
// Bindings: 0 w, 1 grad, 2 m, 3 v, 4 step values; a kind without m or v has another buffer there.
// `keeps`: SGD and RMSPROP have an m, their velocity.
// Dispatch: grid-stride over count.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kind = 0;
#define BUFFERS(B) B(0, Floats, w) B(1, Floats, grad) B(2, Floats, m) B(3, Floats, v) B(4, Steps, now)
#define PARAMS uint count, decayed, flag, keeps; float epsilon;
#include "interface.glsl"
#include "corrections.glsl"

#define SGD 0
#define ADAM 1
#define ADAGRAD 2
#define RMSPROP 3
#define LION 4

void main() {
  if (now.v[0].update == 0) return;  // gradients are being accumulated
  const float rate = now.v[0].learning_rate, t = float(now.v[0].update);
  const float a = now.v[0].kept_a, b = now.v[0].kept_b, decay = now.v[0].weight_decay;
  const float rest_a = now.v[0].rest_a, rest_b = now.v[0].rest_b;
  const float first = kind == ADAM ? one_minus_power(now.v[0].log_a, t) : 1.0;
  const float second = kind == ADAM ? one_minus_power(now.v[0].log_b, t) : 1.0;
  FOR_EACH(i, count) {
    const float x = w.v[i], d = i < decayed ? decay : 0.0;
    float g = grad.v[i];
    if (kind == LION) {
      const float past = m.v[i];
      w.v[i] = x - rate * (sign(a * past + rest_a * g) + d * x);
      m.v[i] = b * past + rest_b * g;
      continue;
    }
    if (kind != ADAM || flag == 0) g += d * x;
    if (kind == SGD) {
      if (keeps != 0) {
        const float velocity = a * m.v[i] + g;
        m.v[i] = velocity;
        g = flag != 0 ? g + a * velocity : velocity;
      }
      w.v[i] = x - rate * g;
    } else if (kind == ADAM) {
      const float mean = a * m.v[i] + rest_a * g, square = b * v.v[i] + rest_b * g * g;
      m.v[i] = mean;
      v.v[i] = square;
      const float kept = flag != 0 ? x - rate * d * x : x;
      w.v[i] = kept - rate * (mean / first) / (sqrt(square / second) + epsilon);
    } else if (kind == ADAGRAD) {
      const float sum = v.v[i] + g * g;
      v.v[i] = sum;
      w.v[i] = x - rate * g / (sqrt(sum) + epsilon);
    } else {
      const float square = b * v.v[i] + rest_b * g * g;
      v.v[i] = square;
      g /= sqrt(square) + epsilon;
      if (keeps != 0) {
        g += a * m.v[i];
        m.v[i] = g;
      }
      w.v[i] = x - rate * g;
    }
  }
}
