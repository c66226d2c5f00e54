#version 450
// Folds batch normalisation by running statistics into the preceding product, whose output channels
// are the last axis of w:
//   scale = gamma / sqrt(var + epsilon),  w' = w scale,  b' = (b - mean) scale + beta
// Bindings: 0 w [rows, c], 1 b (w where there is none), 2 gamma, 3 beta, 4 running mean, 5 running
// var, 6 w', 7 b'.
// Dispatch: channels by slices of rows.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, w) B(1, Floats, b) B(2, Floats, gamma) B(3, Floats, beta) B(4, Floats, mean) \
    B(5, Floats, var) B(6, Floats, folded_w) B(7, Floats, folded_b)
#define PARAMS uint rows, c, slices, bias; float epsilon;
#include "interface.glsl"

void main() {
  const uint ch = CHANNEL;
  if (ch >= c) return;
  const float scale = gamma.v[ch] * inversesqrt(var.v[ch] + epsilon);
  FOR_ROWS(r, rows, slices) folded_w.v[r * c + ch] = w.v[r * c + ch] * scale;
  if (gl_WorkGroupID.y == 0)
    folded_b.v[ch] = ((bias != 0 ? b.v[ch] : 0.0) - mean.v[ch]) * scale + beta.v[ch];
}
