#version 450
// y = mean of x[r] over the valid rows of the batch; gradient dx[r] = dy / valid there, else 0.
// Bindings: 0 x [rows], 1 y [1], 2 step values; the gradient reads dy at 0 and writes dx at 1.
// Dispatch: one invocation (forward), grid-stride over rows (gradient).
//! variant mean_rows
//! variant mean_rows_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 64) in;
layout(binding = 0, std430) readonly buffer In { float x[]; };
layout(binding = 1, std430) writeonly buffer Out { float y[]; };
layout(binding = 2, std430) readonly buffer Step { StepValues now; };
layout(push_constant) uniform Push { uint rows; };

void main() {
  const uint valid = min(now.valid_rows, rows);
#ifdef GRAD
  FOR_EACH(r, rows) y[r] = r < valid ? x[0] / float(valid) : 0.0;
#else
  if (gl_GlobalInvocationID.x != 0) return;
  float sum = 0.0;
  for (uint r = 0; r < valid; ++r) sum += x[r];
  y[0] = sum / float(max(valid, 1));
#endif
}
