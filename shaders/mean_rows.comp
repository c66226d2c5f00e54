#version 450
// y = mean of x[r] over the valid rows of the batch; gradient dx[r] = dy / valid there, else 0.
// Bindings: 0 x [rows], 1 y [1], 2 step values; the gradient reads dy at 0 and writes dx at 1.
// Dispatch: one invocation (forward), grid-stride over rows (gradient).
//! variant mean_rows
//! variant mean_rows_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y) B(2, Steps, now)
#define PARAMS uint rows;
#include "interface.glsl"

void main() {
  const uint valid = min(now.v[0].valid_rows, rows);
#ifdef GRAD
  FOR_EACH(r, rows) y.v[r] = r < valid ? x.v[0] / float(valid) : 0.0;
#else
  if (gl_GlobalInvocationID.x != 0) return;
  float sum = 0.0;
  for (uint r = 0; r < valid; ++r) sum += x.v[r];
  y.v[0] = sum / float(max(valid, 1));
#endif
}
