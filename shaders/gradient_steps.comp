#version 450
// Processes gradients before, and weights after, an optimizer's update.
//   accumulate  sum = (first of an update ? 0 : sum) + g;  on the last, g = sum / steps     (0 g, 1 sum, 2 step values)
//               a batch that is not finite cancels its whole update (now.update = 0): until the
//               first of the next one the sum is NaN, which checkpoints keep
//   squares     partial[z] = sum of g^2 of a part                                           (0 g, 1 partial [parts])
//   norm        norm[0] = sqrt(sum of partial)                                               (0 partial, 1 norm)
//   adjust      g = clamp(g min(1, most_norm / norm), -most, most) + proximal (w - anchor)
//               anchor = w at the time when the batch was fresh (Agarwal et al. 2020)
//               (0 w, 1 g, 2 norm, 3 anchor, 4 step values); a limit of 0 means none
//   finite      cancels the update (now.update = 0, now.not_finite = 1) if an element or the loss
//               is not finite, or if an earlier step failed and the host does not know it yet
//               (failed != 0)
//               (0 g, 1 loss [1], 2 failed [1], 3 step values)
//   verdict     NaN if an element is not finite                       (0 g, 1 verdict [1])
//   average     mean = decay mean + (1 - decay) w                     (0 w, 1 mean, 2 step values)
//   receive     w = there, which another rank has updated, in steps that end an update
//               (0 w, 1 there, 2 step values)
// Dispatch: grid-stride over count; squares: rows = parts; norm: one row.
//! variant gradient_accumulate -DACCUMULATE
//! variant gradient_squares -DSQUARES
//! variant gradient_norm -DNORM
//! variant gradient_adjust -DADJUST
//! variant gradient_finite -DFINITE
//! variant gradient_verdict -DVERDICT
//! variant weights_average -DAVERAGE
//! variant weights_receive -DRECEIVE
#extension GL_GOOGLE_include_directive : require
#define PARAMS uint count, steps; float most_norm, most, proximal, decay;

#if defined(SQUARES) || defined(NORM)
#ifdef SQUARES
#define BUFFERS(B) B(0, Floats, g) B(1, Floats, partial)
#else
#define BUFFERS(B) B(0, Floats, partial) B(1, Floats, norm)
#endif
#include "interface.glsl"
#include "row.glsl"
void main() {
  float sum = 0.0;
#ifdef SQUARES
  for (uint i = gl_WorkGroupID.x * gl_WorkGroupSize.x + LANE; i < count;
       i += gl_NumWorkGroups.x * gl_WorkGroupSize.x)
    sum += g.v[i] * g.v[i];
  sum = row_sum(sum);
  if (LANE == 0) partial.v[gl_WorkGroupID.x] = sum;
#else
  FOR_LANES(i, count) sum += partial.v[i];
  sum = row_sum(sum);
  if (LANE == 0) norm.v[0] = sqrt(sum);
#endif
}
#else
layout(local_size_x = 64) in;
#if defined(ACCUMULATE)
#define BUFFERS(B) B(0, Floats, g) B(1, Floats, sum) B(2, Steps, now)
#elif defined(ADJUST)
#define BUFFERS(B) B(0, Floats, w) B(1, Floats, g) B(2, Floats, norm) B(3, Floats, anchor) B(4, Steps, now)
#elif defined(FINITE)
#define BUFFERS(B) B(0, Uints, g) B(1, Uints, loss) B(2, Uints, failed) B(3, Steps, now)
#elif defined(VERDICT)
#define BUFFERS(B) B(0, Uints, g) B(1, Floats, verdict)
#elif defined(RECEIVE)
#define BUFFERS(B) B(0, Floats, w) B(1, Floats, there) B(2, Steps, now)
#else
#define BUFFERS(B) B(0, Floats, w) B(1, Floats, mean) B(2, Steps, now)
#endif
#include "interface.glsl"
void main() {
#if defined(ACCUMULATE)
  const bool first = (now.v[0].flags & FIRST_OF_UPDATE) != 0, last = now.v[0].update != 0;
  const bool counts = now.v[0].not_finite == 0;
  FOR_EACH(i, count) {
    const float before = first ? 0.0 : sum.v[i];
    const bool whole = counts && MAGNITUDE_BITS(floatBitsToUint(before)) <= 0x7F800000u;
    const float total = whole ? before + g.v[i] : NOT_A_NUMBER;
    sum.v[i] = total;
    if (!last) continue;
    if (whole)
      g.v[i] = total / float(steps);
    else
      now.v[0].update = 0;
  }
#elif defined(FINITE)
  uint largest = MAGNITUDE_BITS(loss.v[0]);
  FOR_EACH(i, count) largest = max(largest, MAGNITUDE_BITS(g.v[i]));
  if (failed.v[0] != 0 || !IS_FINITE(largest)) {
    now.v[0].update = 0;
    now.v[0].not_finite = 1;
  }
#elif defined(VERDICT)
  uint largest = 0;
  FOR_EACH(i, count) largest = max(largest, MAGNITUDE_BITS(g.v[i]));
  if (!IS_FINITE(largest)) verdict.v[0] = NOT_A_NUMBER;
#elif defined(ADJUST)
  const float size = norm.v[0];
  const float scale = most_norm > 0.0 && size > most_norm ? most_norm / size : 1.0;
  const bool fresh = (now.v[0].flags & FRESH_BATCH) != 0;
  FOR_EACH(i, count) {
    float value = g.v[i] * scale;
    if (most > 0.0) value = clamp(value, -most, most);
    if (proximal > 0.0) {
      if (fresh) anchor.v[i] = w.v[i];
      value += proximal * (w.v[i] - (fresh ? w.v[i] : anchor.v[i]));
    }
    g.v[i] = value;
  }
#elif defined(RECEIVE)
  if (now.v[0].update == 0) return;
  FOR_EACH(i, count) w.v[i] = there.v[i];
#else
  if (now.v[0].update == 0) return;
  FOR_EACH(i, count) mean.v[i] = decay * mean.v[i] + (1.0 - decay) * w.v[i];
#endif
}
#endif
