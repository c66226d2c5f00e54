#version 450
// Optimizers that scale each tensor's step by a trust ratio. r is the learning rate, d the weight
// decay.
//   LARS (You et al. 2017)  u = g + d w,  q = trust |w| / (|g| + d |w|),  m = a m + r q u,  w -= m
//   LAMB (You et al. 2020)  m, v as Adam's,  u = m' / (sqrt(v') + epsilon) + d w,  q = |w| / |u|,  w -= r q u
// q is 1 for parameters without decay (biases, normalisation) and if a norm is 0. Tensors are cut
// into segments, one per workgroup: segment s is [begin, count, tensor], and tensor t is
// [first segment, segments, decayed].
//   direction  u, and m and v of LAMB          (0 w, 1 grad, 2 m, 3 v, 4 u, 5 segments, 6 tensors, 7 step values)
//   norms      partial [segments, 2]: |w|^2 and |g|^2 (LARS) or |u|^2 (LAMB)   (0 w, 1 other, 2 segments, 3 partial)
//   ratios     q [tensors]                      (0 partial, 1 tensors, 2 ratios, 3 step values)
//   apply      w, and m of LARS                 (0 w, 1 m, 2 u, 3 ratios, 4 segments, 5 step values)
// Dispatch: a row for each segment; ratios: grid-stride over tensors.
//! variant trust_direction -DDIRECTION
//! variant trust_norms -DNORMS
//! variant trust_ratios -DRATIOS
//! variant trust_apply -DAPPLY
#extension GL_GOOGLE_include_directive : require
#define PARAMS uint count; float epsilon, trust;
layout(constant_id = 1) const uint lamb = 0;

#if defined(RATIOS)
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, partial) B(1, Uints, tensors) B(2, Floats, ratios) B(3, Steps, now)
#include "interface.glsl"
void main() {
  const float decay = now.v[0].weight_decay;
  FOR_EACH(t, count) {
    float weights = 0.0, steps = 0.0;
    const uint first = tensors.v[3 * t], end = first + tensors.v[3 * t + 1];
    for (uint s = first; s < end; ++s) {
      weights += partial.v[2 * s];
      steps += partial.v[2 * s + 1];
    }
    weights = sqrt(weights);
    steps = sqrt(steps);
    const float below = lamb != 0 ? steps : steps + decay * weights;
    const bool adapts = tensors.v[3 * t + 2] != 0 && weights > 0.0 && steps > 0.0;
    ratios.v[t] = adapts ? (lamb != 0 ? 1.0 : trust) * weights / below : 1.0;
  }
}
#else
#if defined(DIRECTION)
#define BUFFERS(B) B(0, Floats, w) B(1, Floats, grad) B(2, Floats, m) B(3, Floats, v) B(4, Floats, u) \
    B(5, Uints, segments) B(6, Uints, tensors) B(7, Steps, now)
#elif defined(NORMS)
#define BUFFERS(B) B(0, Floats, w) B(1, Floats, other) B(2, Uints, segments) B(3, Floats, partial)
#else
#define BUFFERS(B) B(0, Floats, w) B(1, Floats, m) B(2, Floats, u) B(3, Floats, ratios) \
    B(4, Uints, segments) B(5, Steps, now)
#endif
#include "interface.glsl"
#include "row.glsl"
#include "corrections.glsl"

void main() {
#ifndef NORMS
  if (now.v[0].update == 0) return;  // gradients are being accumulated
  const float a = now.v[0].kept_a;
#endif
#ifdef DIRECTION
  const float b = now.v[0].kept_b, decay = now.v[0].weight_decay;
  const float rest_a = now.v[0].rest_a, rest_b = now.v[0].rest_b;
#endif
  FOR_GROUPS(s, count) {
    const uint begin = segments.v[3 * s], length = segments.v[3 * s + 1], t = segments.v[3 * s + 2];
#if defined(DIRECTION)
    const float d = tensors.v[3 * t + 2] != 0 ? decay : 0.0;
    const float step_ = float(now.v[0].update);
    const float first = one_minus_power(now.v[0].log_a, step_),
                second = one_minus_power(now.v[0].log_b, step_);
    FOR_LANES(k, length) {
      const uint i = begin + k;
      float direction = grad.v[i];
      if (lamb != 0) {
        const float mean = a * m.v[i] + rest_a * direction;
        const float square = b * v.v[i] + rest_b * direction * direction;
        m.v[i] = mean;
        v.v[i] = square;
        direction = mean / first / (sqrt(square / second) + epsilon);
      }
      u.v[i] = direction + d * w.v[i];
    }
#elif defined(NORMS)
    float weights = 0.0, steps = 0.0;
    FOR_LANES(k, length) {
      weights += w.v[begin + k] * w.v[begin + k];
      steps += other.v[begin + k] * other.v[begin + k];
    }
    weights = row_sum(weights);
    steps = row_sum(steps);
    if (LANE == 0) {
      partial.v[2 * s] = weights;
      partial.v[2 * s + 1] = steps;
    }
#else
    const float scale = now.v[0].learning_rate * ratios.v[t];
    FOR_LANES(k, length) {
      const uint i = begin + k;
      float move = scale * u.v[i];
      if (lamb == 0) {
        move += a * m.v[i];
        m.v[i] = move;
      }
      w.v[i] -= move;
    }
#endif
  }
}
#endif
