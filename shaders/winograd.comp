#version 450
// 3 x 3 convolutions with stride 1 by Winograd's F(2 x 2, 3 x 3) (Lavin and Gray 2016): 16 products
// for 4 outputs instead of 36.
//   y = A^T [ (G w G^T) * (B^T x B) ] A   for each tile of 2 x 2 outputs, which reads 4 x 4 inputs;
// the products in the middle are matrix products over the channels, one for each of 16 positions.
//   input   v = B^T x B        x [n, h, w, c]      -> v [tiles, 16, c], zero outside the image
//   filter  u = G w G^T        w [3, 3, c, f]      -> u [c, 16, f]; flipped: reversed taps
//   output  y = A^T m A        m [tiles, 16, f]    -> y [n, oh, ow, f] (+ bias) (ReLU)
// Bindings: 0 from, 1 to; output: 2 bias. Dispatch: channels by slices of rows; rows are tiles
// (filter: c).
//! variant winograd_input -DINPUT
//! variant winograd_filter -DFILTER
//! variant winograd_output -DOUTPUT
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#ifdef OUTPUT
#define BUFFERS(B) B(0, Floats, from) B(1, Floats, to) B(2, Floats, shift)
#else
#define BUFFERS(B) B(0, Floats, from) B(1, Floats, to)
#endif
// Lanes own `channels`. h, w: size of the image (input: x, output: y). tiles_y, tiles_x: per image.
#define PARAMS \
  uint rows, channels, slices, h, w, tiles_y, tiles_x; int pad_y, pad_x; uint first_image, relu, bias, flipped;
#include "interface.glsl"

// The transforms along one axis: B^T d, G g, A^T m.
vec4 input_of(vec4 d) { return vec4(d.x - d.z, d.y + d.z, d.z - d.y, d.y - d.w); }
vec4 filter_of(vec3 g) {
  return vec4(g.x, 0.5 * (g.x + g.y + g.z), 0.5 * (g.x - g.y + g.z), g.z);
}
vec2 output_of(vec4 m) { return vec2(m.x + m.y + m.z, m.y - m.z - m.w); }

void main() {
  const uint ch = CHANNEL;
  if (ch >= channels) return;
  FOR_ROWS(row, rows, slices) {
#ifdef FILTER
    vec4 half_way[3];  // transformed along x, by ky
    [[unroll]] for (uint ky = 0; ky < 3; ++ky) {
      vec3 taps;
      [[unroll]] for (uint kx = 0; kx < 3; ++kx) {
        const uint tap = flipped != 0 ? 8 - (ky * 3 + kx) : ky * 3 + kx;
        taps[kx] = from.v[(tap * rows + row) * channels + ch];
      }
      half_way[ky] = filter_of(taps);
    }
    [[unroll]] for (uint x = 0; x < 4; ++x) {
      const vec4 column = filter_of(vec3(half_way[0][x], half_way[1][x], half_way[2][x]));
      [[unroll]] for (uint y = 0; y < 4; ++y)
        to.v[(row * 16 + y * 4 + x) * channels + ch] = column[y];
    }
#else
    const uint tile_x = row % tiles_x, tile_y = row / tiles_x % tiles_y;
    const uint image = first_image + row / (tiles_x * tiles_y);
#ifdef INPUT
    const int y0 = int(2 * tile_y) - pad_y, x0 = int(2 * tile_x) - pad_x;
    vec4 half_way[4];
    [[unroll]] for (int i = 0; i < 4; ++i) {
      const int y = y0 + i;
      const bool line = y >= 0 && y < int(h);
      const uint base = (image * h + uint(line ? y : 0)) * w;
      vec4 d;
      [[unroll]] for (int j = 0; j < 4; ++j) {
        const int x = x0 + j;
        const bool inside = line && x >= 0 && x < int(w);
        const float value = from.v[(base + uint(inside ? x : 0)) * channels + ch];
        d[j] = inside ? value : 0.0;
      }
      half_way[i] = input_of(d);
    }
    [[unroll]] for (uint x = 0; x < 4; ++x) {
      const vec4 column = input_of(vec4(half_way[0][x], half_way[1][x], half_way[2][x], half_way[3][x]));
      [[unroll]] for (uint y = 0; y < 4; ++y)
        to.v[(row * 16 + y * 4 + x) * channels + ch] = column[y];
    }
#else
    vec2 half_way[4];
    [[unroll]] for (uint y = 0; y < 4; ++y) {
      vec4 m;
      [[unroll]] for (uint x = 0; x < 4; ++x) m[x] = from.v[(row * 16 + y * 4 + x) * channels + ch];
      half_way[y] = output_of(m);
    }
    const float add = bias != 0 ? shift.v[ch] : 0.0;
    [[unroll]] for (uint x = 0; x < 2; ++x) {
      const vec2 column = output_of(vec4(half_way[0][x], half_way[1][x], half_way[2][x], half_way[3][x])) + add;
      [[unroll]] for (uint y = 0; y < 2; ++y) {
        const uint at_y = 2 * tile_y + y, at_x = 2 * tile_x + x;
        if (at_y < h && at_x < w)
          to.v[((image * h + at_y) * w + at_x) * channels + ch] = relu != 0 ? relu_of(column[y]) : column[y];
      }
    }
#endif
#endif
  }
}
