#version 450
// Batch normalisation over the rows of x [rows, c] (Ioffe and Szegedy 2015), optionally with ReLU:
//   y = gamma * (x - mean) * inv_std + beta,  inv_std = 1 / sqrt(var + eps)
// Training takes mean and (biased) variance of the batch and moves the running ones towards them,
//   running = momentum * running + (1 - momentum) * batch (variance unbiased);
// evaluation uses the running ones. With g = dy (masked by y > 0 under ReLU), h = (x - mean) * inv_std:
//   dbeta = sum g,  dgamma = sum g * h,  dx = gamma * inv_std * (g - (dbeta + h * dgamma) / rows)
//
// Stages, each a variant:
//   stats     partial mean and sum of squared deviations of a slice of rows
//             (0 x, 1 partial [slices, 2, c]); x over channels, y = slices
//   merge     the slices' moments joined pairwise (Chan et al. 1979), running values moved
//             (0 partial, 1 moments [2, c]: mean, inv_std, 2 running mean, 3 running var)
//   fixed     moments from the running values (0 running mean, 1 running var, 2 moments)
//   apply     y (0 x, 1 moments, 2 gamma, 3 beta, 4 y); grid-stride over rows * c
//   grad_sums partial sums of g and g * h (0 x, 1 y, 2 dy, 3 moments, 4 partial [slices, 2, c])
//   grad_x    dx (0 x, 1 y, 2 dy, 3 moments, 4 gamma, 5 sums [2, c], 6 dx)
//! variant batch_norm_stats -DSTATS
//! variant batch_norm_merge -DMERGE
//! variant batch_norm_fixed -DFIXED
//! variant batch_norm_apply -DAPPLY
//! variant batch_norm_grad_sums -DGRAD_SUMS
//! variant batch_norm_grad_x -DGRAD_X
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(push_constant) uniform Push {
  uint rows, c, slices, relu;
  float epsilon, momentum;
};

uint slice_rows() { return (rows + slices - 1) / slices; }

#if defined(STATS)
layout(local_size_x = 16) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) writeonly buffer Partial { float partial[]; };
void main() {
  const uint ch = gl_GlobalInvocationID.x, z = gl_WorkGroupID.y;
  if (ch >= c) return;
  const uint begin = z * slice_rows(), end = min(begin + slice_rows(), rows);
  float sum = 0.0, squares = 0.0;
  for (uint r = begin; r < end; ++r) sum += x[r * c + ch];
  const float mean = end > begin ? sum / float(end - begin) : 0.0;
  for (uint r = begin; r < end; ++r) {
    const float d = x[r * c + ch] - mean;
    squares += d * d;
  }
  partial[(2 * z) * c + ch] = mean;
  partial[(2 * z + 1) * c + ch] = squares;
}
#elif defined(MERGE)
layout(local_size_x = 64) in;
layout(binding = 0, std430) readonly buffer Partial { float partial[]; };
layout(binding = 1, std430) writeonly buffer Moments { float moments[]; };
layout(binding = 2, std430) buffer Mean { float running_mean[]; };
layout(binding = 3, std430) buffer Var { float running_var[]; };
void main() {
  FOR_EACH(ch, c) {
    float n = 0.0, mean = 0.0, squares = 0.0;
    for (uint z = 0; z * slice_rows() < rows; ++z) {
      const float nz = float(min(slice_rows(), rows - z * slice_rows()));
      const float d = partial[2 * z * c + ch] - mean;
      squares += partial[(2 * z + 1) * c + ch] + d * d * n * nz / (n + nz);
      mean += d * nz / (n + nz);
      n += nz;
    }
    moments[ch] = mean;
    moments[c + ch] = inversesqrt(squares / n + epsilon);
    running_mean[ch] = momentum * running_mean[ch] + (1.0 - momentum) * mean;
    running_var[ch] = momentum * running_var[ch] + (1.0 - momentum) * squares / max(n - 1.0, 1.0);
  }
}
#elif defined(FIXED)
layout(local_size_x = 64) in;
layout(binding = 0, std430) readonly buffer Mean { float running_mean[]; };
layout(binding = 1, std430) readonly buffer Var { float running_var[]; };
layout(binding = 2, std430) writeonly buffer Moments { float moments[]; };
void main() {
  FOR_EACH(ch, c) {
    moments[ch] = running_mean[ch];
    moments[c + ch] = inversesqrt(running_var[ch] + epsilon);
  }
}
#elif defined(APPLY)
layout(local_size_x = 64) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer Moments { float moments[]; };
layout(binding = 2, std430) readonly buffer Gamma { float gamma[]; };
layout(binding = 3, std430) readonly buffer Beta { float beta[]; };
layout(binding = 4, std430) writeonly buffer Y { float y[]; };
void main() {
  FOR_EACH(i, rows * c) {
    const uint ch = i % c;
    const float value = gamma[ch] * (x[i] - moments[ch]) * moments[c + ch] + beta[ch];
    y[i] = relu != 0 ? max(value, 0.0) : value;
  }
}
#elif defined(GRAD_SUMS)
layout(local_size_x = 16) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer Y { float y[]; };
layout(binding = 2, std430) readonly buffer Dy { float dy[]; };
layout(binding = 3, std430) readonly buffer Moments { float moments[]; };
layout(binding = 4, std430) writeonly buffer Partial { float partial[]; };
void main() {
  const uint ch = gl_GlobalInvocationID.x, z = gl_WorkGroupID.y;
  if (ch >= c) return;
  const uint begin = z * slice_rows(), end = min(begin + slice_rows(), rows);
  const float mean = moments[ch], inv_std = moments[c + ch];
  float sum = 0.0, sum_h = 0.0;
  for (uint r = begin; r < end; ++r) {
    const uint i = r * c + ch;
    const float g = relu == 0 || y[i] > 0.0 ? dy[i] : 0.0;
    sum += g;
    sum_h += g * (x[i] - mean) * inv_std;
  }
  partial[(2 * z) * c + ch] = sum;
  partial[(2 * z + 1) * c + ch] = sum_h;
}
#else
layout(local_size_x = 64) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer Y { float y[]; };
layout(binding = 2, std430) readonly buffer Dy { float dy[]; };
layout(binding = 3, std430) readonly buffer Moments { float moments[]; };
layout(binding = 4, std430) readonly buffer Gamma { float gamma[]; };
layout(binding = 5, std430) readonly buffer Sums { float sums[]; };
layout(binding = 6, std430) writeonly buffer Dx { float dx[]; };
void main() {
  FOR_EACH(i, rows * c) {
    const uint ch = i % c;
    const float inv_std = moments[c + ch], h = (x[i] - moments[ch]) * inv_std;
    const float g = relu == 0 || y[i] > 0.0 ? dy[i] : 0.0;
    dx[i] = gamma[ch] * inv_std * (g - (sums[ch] + h * sums[c + ch]) / float(rows));
  }
}
#endif
