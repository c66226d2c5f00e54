#version 450
// Per row of logits [rows, classes] with integer label t, smoothing s (Szegedy et al. 2016) and
// weight w[row]:
//   loss = w (log sum exp(x) - sum_k q_k x_k),  q_k = (1 - s) [k = t] + s / classes
//   dx_k = w (softmax(x)_k - q_k) * dloss
// A label outside [0, classes) makes the row's loss NaN, so that it is noticed. A row of weight 0
// has loss 0 whatever its label. s comes from the step's values.
// Bindings: forward 0 logits, 1 labels, 2 weights, 3 loss [rows], 4 step values; gradient 3 dloss,
// 4 dx, 5 step values. Dispatch: rows.
//! variant softmax_cross_entropy
//! variant softmax_cross_entropy_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
#ifdef GRAD
#define BUFFERS(B) B(0, Floats, x) B(1, Ints, labels) B(2, Floats, weights) B(3, Floats, dloss) \
    B(4, Floats, dx) B(5, Steps, now)
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Ints, labels) B(2, Floats, weights) B(3, Floats, loss) \
    B(4, Steps, now)
#endif
#define PARAMS uint rows, classes, weighted;
#include "interface.glsl"
#include "row.glsl"

void main() {
  const float smoothing = now.v[0].label_smoothing;
  FOR_GROUPS(r, rows) {
    const uint base = r * classes;
    const float weight = weighted != 0 ? weights.v[r] : 1.0;
    const int t = labels.v[r];
    float top = x.v[base], sum = 0.0;
    FOR_LANES(k, classes) top = max(top, x.v[base + k]);
    top = row_max(top);
    FOR_LANES(k, classes) sum += exp_of(x.v[base + k] - top);
    sum = row_sum(sum);
#ifdef GRAD
    const float slope = weight != 0.0 ? weight * dloss.v[r] : 0.0;
    FOR_LANES(k, classes) {
      const float q = (int(k) == t ? 1.0 - smoothing : 0.0) + smoothing / float(classes);
      dx.v[base + k] = (exp(x.v[base + k] - top) / sum - q) * slope;
    }
#else
    float total = 0.0;
    if (smoothing != 0.0) FOR_LANES(k, classes) total += x.v[base + k];
    total = row_sum(total);
    const bool valid = t >= 0 && t < int(classes);
    const float aimed =
        (1.0 - smoothing) * x.v[base + (valid ? t : 0)] + smoothing / float(classes) * total;
    if (LANE == 0)
      loss.v[r] = weight == 0.0 ? 0.0
                  : valid       ? weight * (log_of(sum) + top - aimed)
                                : NOT_A_NUMBER;
#endif
  }
}
