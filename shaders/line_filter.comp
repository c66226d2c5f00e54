#version 450
// Transforms the weights of a convolution with three taps along a line for conv_line.comp:
//   u = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2)   w [kh, 3, c, n] -> u [kh, c, n, 4]
// `turned`, for the gradient of x: w is [kh, 3, n, c], and its taps are reversed along both axes.
// Bindings: 0 w, 1 u. Dispatch: channels (n) by slices of rows (ky, c).
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, w) B(1, Floats, u)
#define PARAMS uint rows, slices, kh, c, n, turned;
#include "interface.glsl"

void main() {
  const uint column = CHANNEL;
  if (column >= n) return;
  FOR_ROWS(r, rows, slices) {
    const uint ky = r / c, channel = r % c;
    vec3 g;
    [[unroll]] for (uint kx = 0; kx < 3; ++kx)
      g[kx] = w.v[turned != 0 ? (((kh - 1 - ky) * 3 + 2 - kx) * n + column) * c + channel
                              : ((ky * 3 + kx) * c + channel) * n + column];
    const uint at = (r * n + column) * 4;
    u.v[at] = g.x;
    u.v[at + 1] = 0.5 * (g.x + g.y + g.z);
    u.v[at + 2] = 0.5 * (g.x - g.y + g.z);
    u.v[at + 3] = g.z;
  }
}
