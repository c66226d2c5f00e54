#version 450
// Convolutions with three taps along a line and a stride of 1 by Winograd's F(2, 3) along the lines
// (Lavin and Gray 2016), for devices whose "GPU" is a CPU's vector unit: four products for two
// pixels instead of six. Pixels are transformed while they are loaded into registers, without extra
// memory traffic.
//   pixels d0..d3 of a line, taps g0..g2, for two outputs:   d = (d0 - d2, d1 + d2, d2 - d1, d1 - d3)
//   y0 = m0 + m1 + m2, y1 = m1 - m2 - m3,  m = d * u         u = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2)
// and for the gradient of the three taps, from two pixels with the gradients e0, e1:
//   g0 = m0 + m1 + m2, g1 = m1 - m2, g2 = m1 + m2 + m3,
//   m = (.., .., .., d3 - d1) * (e0, (e0 + e1) / 2, (e0 - e1) / 2, e1)
//
// One workgroup is one subgroup and computes ROWS rows by COLUMNS columns, as gemm_cpu.comp does.
// Each element has four sums.
//   forward  Row = pair of output pixels (image, oy, pair), with lines padded to runs of BLOCKS;
//            k = (ky, channel), in steps of four channels; A = input [batch, h, w, c];
//            B = u [kh, c, n, 4], of line_filter.comp; C [batch, oh, ow, n].
//   DW       Row = (ky, channel); k = pair of output pixels, four at a time; A = input,
//            B = output gradient [batch, oh, ow, n]; C [slices, kh, 3, c, n]. A slice is a range of lines.
// Bindings (device addresses): a, b, side, residual, c. Parameters and epilogue: gemm_params.glsl,
// with m in rows as above.
// Dispatch: x = ceil(m / ROWS), y = ceil(n / COLUMNS), z = slices.
//
//! variant conv_line_8_16x2 -DLANES=8 -DCOLUMNS=16 -DBLOCKS=2
//! variant conv_line_8_32x1 -DLANES=8 -DCOLUMNS=32 -DBLOCKS=1
//! variant conv_line_8_32x2 -DLANES=8 -DCOLUMNS=32 -DBLOCKS=2
//! variant conv_line_16_16x4 -DLANES=16 -DCOLUMNS=16 -DBLOCKS=4
//! variant conv_line_16_16x2 -DLANES=16 -DCOLUMNS=16 -DBLOCKS=2
//! variant conv_line_16_32x1 -DLANES=16 -DCOLUMNS=32 -DBLOCKS=1
//! variant conv_line_dw_8_16x2 -DDW -DLANES=8 -DCOLUMNS=16 -DBLOCKS=2
//! variant conv_line_dw_8_32x2 -DDW -DLANES=8 -DCOLUMNS=32 -DBLOCKS=2
//! variant conv_line_dw_16_16x2 -DDW -DLANES=16 -DCOLUMNS=16 -DBLOCKS=2
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_basic : require

#include "finite.glsl"
#include "gemm_params.glsl"
#include "quotient.glsl"

#define WIDTH (COLUMNS / LANES)
#if WIDTH == 4
#define VEC vec4
#define PART(value, i) value[i]
#elif WIDTH == 2
#define VEC vec2
#define PART(value, i) value[i]
#else
#define VEC float
#define PART(value, i) value
#endif
#define PIXELS (2 * BLOCKS + 2)
#define RUNS ((p.ow + 2 * BLOCKS - 1) / (2 * BLOCKS))  // of BLOCKS pairs each, in a line
#define ROWS (LANES * BLOCKS)
#ifdef DW
#define PAIRS_ALONG_M
#endif

layout(local_size_x = LANES) in;
layout(constant_id = 0) const uint kTail = 0;  // 1: channels % 4 != 0 (DW: p.ow % 8 != 0)
layout(constant_id = 1) const uint kLoose = 0;  // 1: a line of the output ends within a run
layout(constant_id = 2) const uint kPairs = 0;  // of A: along its channels (then no tail); DW, of B: along n
layout(constant_id = 3) const uint kJoins = 0;  // RESIDUAL, KEEP, MOMENTS

#include "gemm_cpu_operand.glsl"

VEC acc[ROWS][4];
uint column;  // first of this lane's WIDTH columns, in range

// The transformed operands of four steps along k: of A the lane's row of each block, of B its
// columns.
vec4 next_a[BLOCKS * 4];
VEC next_b[16];

// Stores d of four pixels as a block's; `sign` is that of its last component.
void transform(uint blk, vec4 d[4], float sign) {
  next_a[4 * blk] = d[0] - d[2];
  next_a[4 * blk + 1] = d[1] + d[2];
  next_a[4 * blk + 2] = d[2] - d[1];
  next_a[4 * blk + 3] = sign * (d[1] - d[3]);
}

#define ROW(r)                                                                            \
  [[unroll]] for (uint j = 0; j < 4; ++j) {                                               \
    const vec4 s = subgroupBroadcast(next_a[4 * blk + j], r);                             \
    VEC sum = acc[ROW_OF(blk, r)][j];                                                     \
    [[unroll]] for (uint step = 0; step < 4; ++step) sum += s[step] * b_now[4 * step + j]; \
    acc[ROW_OF(blk, r)][j] = sum;                                                         \
  }

// Accumulates the four steps that are loaded.
void multiply() {
  const VEC b_now[16] = next_b;
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)
#if LANES == 16
    ROW(8) ROW(9) ROW(10) ROW(11) ROW(12) ROW(13) ROW(14) ROW(15)
#endif
  }
}

#ifndef DW
// A lane's rows are BLOCKS adjacent pairs: the pixels that they read overlap.
uint offset[PIXELS];  // of the pixels, in a line
bool within[PIXELS];
uint image;
int y0;

// Loads the four steps from channel `ch` of line `ky` of the filter.
void load(uint ky, uint ch) {
  const int y = y0 + int(ky);
  const bool inside = y >= 0 && y < int(p.h);
  const uint base = (image * p.h + uint(inside ? y : 0)) * p.w * p.c + ch;
  const uvec4 i = kTail != 0 ? min(uvec4(0, 1, 2, 3), uvec4(p.c - 1 - ch)) : uvec4(0, 1, 2, 3);
  vec4 pixels[PIXELS];
  [[unroll]] for (uint pixel = 0; pixel < PIXELS; ++pixel) {
    const uint at = base + offset[pixel];
    vec4 x;
    if ((kPairs & PAIRS_OF_A) != 0)
      x = vec4(pair(a, at), pair(a, at + 2));
    else
      x = vec4(a.v[at + i.x], a.v[at + i.y], a.v[at + i.z], a.v[at + i.w]);
    if (kTail != 0) x = mix(vec4(0), x, lessThan(uvec4(ch) + uvec4(0, 1, 2, 3), uvec4(p.c)));
    pixels[pixel] = mix(vec4(0), x, bvec4(inside && within[pixel]));
  }
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk)
    transform(blk, vec4[4](pixels[2 * blk], pixels[2 * blk + 1], pixels[2 * blk + 2], pixels[2 * blk + 3]), 1.0);
  [[unroll]] for (uint step = 0; step < 4; ++step)
    [[unroll]] for (uint of = 0; of < WIDTH; ++of) {
      const uint at = ((ky * p.c + ch + i[step]) * p.n + min(column + of, p.n - 1)) * 4;
      [[unroll]] for (uint j = 0; j < 4; j += 2) {
        const vec2 u = pair(b, at + j);
        PART(next_b[4 * step + j], of) = u[0];
        PART(next_b[4 * step + j + 1], of) = u[1];
      }
    }
}

void accumulate(uint row0, uint lane) {
  const uint run = min(row0 / BLOCKS + lane, p.m / BLOCKS - 1), runs = RUNS;
  const uint line = quotient(run, runs);
  image = quotient(line, p.oh);
  y0 = int(line - image * p.oh) - int(p.pad_y);
  const int x0 = int(2 * BLOCKS * (run - line * runs)) - int(p.pad_x);
  [[unroll]] for (uint i = 0; i < PIXELS; ++i) {
    const int x = x0 + int(i);
    within[i] = x >= 0 && x < int(p.w);
    offset[i] = uint(clamp(x, 0, int(p.w) - 1)) * p.c;
  }
#if LOADS_AHEAD
  load(0, 0);
#endif
  for (uint ky = 0; ky < p.kh; ++ky)
    for (uint ch = 0; ch < p.c; ch += 4) {
#if LOADS_AHEAD
      multiply();
      const bool ends = ch + 4 >= p.c;
      load(ends ? min(ky + 1, p.kh - 1) : ky, ends ? 0 : ch + 4);
#else
      load(ky, ch);
      multiply();
#endif
    }
}
#else
int ky[BLOCKS];
uint channel[BLOCKS];

// Loads four pairs of pixels from `ox` of line `oy` of the output of an image; `line` counts all lines.
void load(uint image, uint oy, uint line, uint ox) {
  uint base[BLOCKS];
  bool inside[BLOCKS];
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    const int y = int(oy) + ky[blk];
    inside[blk] = y >= 0 && y < int(p.h);
    base[blk] = (image * p.h + (inside[blk] ? uint(y) : 0)) * p.w * p.c + channel[blk];
  }
  float x[BLOCKS][10];
  [[unroll]] for (uint i = 0; i < 10; ++i) {
    const int at = int(ox + i) - int(p.pad_x);
    const uint pixel = uint(clamp(at, 0, int(p.w) - 1)) * p.c;
    [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
      if ((kPairs & PAIRS_OF_A) == 0) {
        x[blk][i] = a.v[base[blk] + pixel];
      } else if (blk % 2 == 0) {
        const vec2 channels = pair(a, base[blk] + pixel);
        x[blk][i] = channels[0];
        x[blk + 1][i] = channels[1];
      }
      x[blk][i] = mix(0.0, x[blk][i], inside[blk] && at >= 0 && at < int(p.w));
    }
  }
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    vec4 d[4];
    [[unroll]] for (uint i = 0; i < 4; ++i)
      d[i] = vec4(x[blk][i], x[blk][i + 2], x[blk][i + 4], x[blk][i + 6]);
    transform(blk, d, -1.0);
  }
  [[unroll]] for (uint step = 0; step < 4; ++step) {
    VEC e[2];
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      const uint at = ox + 2 * step + i;
      const uint row = line * p.ow + (kTail != 0 ? min(at, p.ow - 1) : at);
      e[i] = load_b(row * p.n + column, p.n - 1 - column);
      if (kTail != 0) e[i] = at < p.ow ? e[i] : VEC(0);
    }
    next_b[4 * step] = e[0];
    next_b[4 * step + 1] = 0.5 * (e[0] + e[1]);
    next_b[4 * step + 2] = 0.5 * (e[0] - e[1]);
    next_b[4 * step + 3] = e[1];
  }
}

void accumulate(uint row0, uint lane) {
  const uint lines = p.batch * p.oh, per_slice = quotient(lines + p.slices - 1, p.slices);
  const uint first = min(gl_WorkGroupID.z * per_slice, lines), end = min(first + per_slice, lines);
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    const uint row = min(row0 + ROW_OF(blk, lane), LAST_ROW(blk));
    const uint of_line = quotient(row, p.c);
    ky[blk] = int(of_line) - int(p.pad_y);
    channel[blk] = row - of_line * p.c;
  }
  uint image = quotient(first, p.oh), oy = first - image * p.oh;
#if LOADS_AHEAD
  load(min(image, p.batch - 1), oy, min(first, lines - 1), 0);
#endif
  for (uint line = first; line < end; ++line) {  // avoids divisions, which run lane by lane
    const uint y = oy + 1 == p.oh ? 0 : oy + 1, of = image + (y == 0 ? 1 : 0);
    const bool last = line + 1 == lines;
    for (uint ox = 0; ox < p.ow; ox += 8) {  // four pairs of pixels
#if LOADS_AHEAD
      multiply();
      const bool ends = ox + 8 >= p.ow, on = ends && !last;
      load(on ? of : image, on ? y : oy, on ? line + 1 : line, ends ? 0 : ox + 8);
#else
      load(image, oy, line, ox);
      multiply();
#endif
    }
    oy = y;
    image = of;
  }
}
#endif

// See gemm_cpu.comp.
void keep_in_memory() {
#if LOADS_AHEAD
  if (p.m == 0xffffffffu) acc[p.k % ROWS][0] += next_a[p.n % (4 * BLOCKS)].x + next_b[p.n % 16];
#endif
}

void main() {
  const uint lane = gl_SubgroupInvocationID;
  const uint row0 = gl_WorkGroupID.x * ROWS;
  [[unroll]] for (uint r = 0; r < ROWS; ++r)
    [[unroll]] for (uint j = 0; j < 4; ++j) acc[r][j] = VEC(0);
  const uint first_column = gl_WorkGroupID.y * COLUMNS + lane * WIDTH;
  column = min(first_column, LAST_COLUMN);
  accumulate(row0, lane);
  keep_in_memory();

#ifdef DW
  const uint out0 = gl_WorkGroupID.z * p.m * 3 * p.n;
  [[unroll]] for (uint i = 0; i < WIDTH; ++i) {
    const uint col = first_column + i;
    if (col >= p.n) continue;
    uint ky = row0 / p.c, channel = row0 % p.c;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      const uint to = ky * 3 * p.c + channel;
      channel = channel + 1 == p.c ? 0 : channel + 1;
      ky += channel == 0 ? 1 : 0;
      if (row0 + r >= p.m) continue;
      const vec4 m = vec4(PART(acc[r][0], i), PART(acc[r][1], i), PART(acc[r][2], i), PART(acc[r][3], i));
      const uint at = out0 + to * p.n + col, tap = p.c * p.n;
      c.v[at] = m.x + m.y + m.z;
      c.v[at + tap] = m.y - m.z;
      c.v[at + 2 * tap] = m.y + m.z + m.w;
    }
  }
#else
  [[unroll]] for (uint i = 0; i < WIDTH; ++i) {
    const uint col = first_column + i;
    if (col >= p.n) continue;
    const float shift = (p.epilogue & BIAS) != 0 ? side.v[col] : 0.0;
    vec2 y[ROWS];  // by row; acc is ordered block by block
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      const uint at = r % BLOCKS * LANES + r / BLOCKS;
      const vec4 m = vec4(PART(acc[at][0], i), PART(acc[at][1], i), PART(acc[at][2], i), PART(acc[at][3], i));
      y[r] = vec2(m.x + m.y + m.z, m.y - m.z - m.w) + shift;
    }
    if ((kJoins & MOMENTS) != 0) {  // requires that every pair is complete
      float sum = 0.0, squares = 0.0;
      [[unroll]] for (uint r = 0; r < ROWS; ++r) sum += row0 + r < p.m ? y[r].x + y[r].y : 0.0;
      const float mean = sum / float(2 * min(ROWS, p.m - row0));
      [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        const vec2 d = row0 + r < p.m ? y[r] - mean : vec2(0);
        squares += dot(d, d);
      }
      residual.v[2 * gl_WorkGroupID.x * p.n + col] = mean;
      residual.v[(2 * gl_WorkGroupID.x + 1) * p.n + col] = squares;
    }
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      const uint row = row0 + r;
      if (row >= p.m) continue;
      const uint x = kLoose != 0 ? 2 * (row % (RUNS * BLOCKS)) : 0;
      const uint first = kLoose != 0 ? row / (RUNS * BLOCKS) * p.ow + x : 2 * row;
      [[unroll]] for (uint pixel = 0; pixel < 2; ++pixel) {
        if (kLoose != 0 && x + pixel >= p.ow) continue;
        const uint at = (first + pixel) * p.n + col;
        float value = y[r][pixel];
        if ((kJoins & RESIDUAL) != 0) value += residual.v[at];
        value = (p.epilogue & RELU) != 0 ? relu_of(value) : value;
        if ((kJoins & KEEP) != 0) value = relu_grad(side.v[at], value);
        c.v[at] = value;
      }
    }
  }
#endif
}
