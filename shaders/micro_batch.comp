#version 450
// Small kernels that a plan with micro-batches needs besides the commands of the passes.
//   values   the step's values for the rows of a micro-batch   (0 the batch's values, 1 its values)
//   sum      sums[2 at] += t, sums[2 at + 1] += t mean;  t = total[1] / all  (0 mean [1], 1 total [2], 2 sums)
//   seed     y = t, times scale[0] if given: loss's gradient (0 total [2], 1 scale [1], 2 y [1])
//   mean     y = sums[2 at + 1] / w;  w = sums[2 at], or 1 where that is 0               (0 sums, 1 y [1])
//   weight   y = w                                                                       (0 sums, 1 y [1])
// `total` is an output of mean_rows: total[1] is the weight of its rows. Dispatch: one invocation.
//! variant micro_batch_values -DVALUES
//! variant micro_batch_sum -DSUM
//! variant micro_batch_seed -DSEED
//! variant micro_batch_mean -DMEAN
//! variant micro_batch_weight -DWEIGHT
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#if defined(VALUES)
#define BUFFERS(B) B(0, Steps, now) B(1, Steps, own)
#define PARAMS uint first, rows;
#elif defined(SUM)
#define BUFFERS(B) B(0, Floats, mean) B(1, Floats, total) B(2, Floats, sums)
#define PARAMS uint at; float all;
#elif defined(SEED)
#define BUFFERS(B) B(0, Floats, total) B(1, Floats, scale) B(2, Floats, y)
#define PARAMS uint scaled; float all;
#else
#define BUFFERS(B) B(0, Floats, sums) B(1, Floats, y)
#define PARAMS uint at;
#endif
#include "interface.glsl"
void main() {
  if (gl_GlobalInvocationID.x != 0) return;
#if defined(VALUES)
  StepValues values = now.v[0];
  values.valid_rows = values.valid_rows > first ? min(values.valid_rows - first, rows) : 0;
  values.first_row += first;
  values.rows = rows;
  own.v[0] = values;
#elif defined(SUM)
  const float weight = total.v[1] / all;
  sums.v[2 * at] += weight;
  sums.v[2 * at + 1] += weight * mean.v[0];
#elif defined(SEED)
  y.v[0] = total.v[1] / all * (scaled != 0 ? scale.v[0] : 1.0);
#else
  const float weight = sums.v[2 * at] > 0.0 ? sums.v[2 * at] : 1.0;
#ifdef MEAN
  y.v[0] = sums.v[2 * at + 1] / weight;
#else
  y.v[0] = weight;
#endif
#endif
}
