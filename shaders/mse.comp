#version 450
// Per row: loss = mean over k of (x_k - t_k)^2; dx_k = 2 (x_k - t_k) / columns * dloss.
// Bindings: forward 0 x, 1 target, 2 loss [rows]; gradient 0 x, 1 target, 2 dloss, 3 dx.
// Dispatch: grid-stride over rows (forward) or rows * columns (gradient).
//! variant mse
//! variant mse_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer T { float t[]; };
layout(push_constant) uniform Push { uint rows, columns; };
#ifdef GRAD
layout(binding = 2, std430) readonly buffer Dloss { float dloss[]; };
layout(binding = 3, std430) writeonly buffer Dx { float dx[]; };
void main() {
  FOR_EACH(i, rows * columns)
    dx[i] = 2.0 * (x[i] - t[i]) / float(columns) * dloss[i / columns];
}
#else
layout(binding = 2, std430) writeonly buffer Loss { float loss[]; };
void main() {
  FOR_EACH(r, rows) {
    float sum = 0.0;
    for (uint k = 0; k < columns; ++k) {
      const float d = x[r * columns + k] - t[r * columns + k];
      sum += d * d;
    }
    loss[r] = sum / float(columns);
  }
}
#endif
