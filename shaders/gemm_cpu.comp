#version 450
// C[m, n] = A[m, k] * B[k, n] (+ bias[n]) (ReLU), for devices whose "GPU" is a CPU's vector unit.
//
// One workgroup is one subgroup: no barriers, no shared memory. It computes a tile of ROWS by
// COLUMNS, whose sums the driver keeps in the L1 cache. A lane owns WIDTH * VECS adjacent
// columns of B. One load of A covers LANES rows, one per lane, and is broadcast row by row, so each
// scalar of A costs one broadcast and each of B one load. Narrow results use narrow tiles with more
// rows, because columns past the end would be wasted.
//
// Bindings (device addresses): a, b [k, n], side, residual, c [slices, m, n]. Modes and epilogue:
// gemm_params.glsl.
// Dispatch: x = ceil(m / ROWS), y = ceil(n / COLUMNS), z = groups * slices. x runs fastest, so the
// columns of B in use stay in the cache. ops/gemm_kernels.cpp knows the tiles too.
//
//! variant gemm_cpu_nn_8_32x64 -DMODE=0 -DLANES=8 -DROWS=32 -DCOLUMNS=64
//! variant gemm_cpu_tn_8_32x64 -DMODE=1 -DLANES=8 -DROWS=32 -DCOLUMNS=64
//! variant gemm_cpu_conv_8_32x64 -DMODE=2 -DLANES=8 -DROWS=32 -DCOLUMNS=64
//! variant gemm_cpu_conv_dx_8_32x64 -DMODE=3 -DLANES=8 -DROWS=32 -DCOLUMNS=64
//! variant gemm_cpu_conv_dw_8_32x64 -DMODE=4 -DLANES=8 -DROWS=32 -DCOLUMNS=64
//! variant gemm_cpu_nn_8_64x32 -DMODE=0 -DLANES=8 -DROWS=64 -DCOLUMNS=32
//! variant gemm_cpu_tn_8_64x32 -DMODE=1 -DLANES=8 -DROWS=64 -DCOLUMNS=32
//! variant gemm_cpu_conv_8_64x32 -DMODE=2 -DLANES=8 -DROWS=64 -DCOLUMNS=32
//! variant gemm_cpu_conv_dx_8_64x32 -DMODE=3 -DLANES=8 -DROWS=64 -DCOLUMNS=32
//! variant gemm_cpu_conv_dw_8_64x32 -DMODE=4 -DLANES=8 -DROWS=64 -DCOLUMNS=32
//! variant gemm_cpu_nn_8_64x16 -DMODE=0 -DLANES=8 -DROWS=64 -DCOLUMNS=16
//! variant gemm_cpu_tn_8_64x16 -DMODE=1 -DLANES=8 -DROWS=64 -DCOLUMNS=16
//! variant gemm_cpu_conv_8_64x16 -DMODE=2 -DLANES=8 -DROWS=64 -DCOLUMNS=16
//! variant gemm_cpu_conv_dx_8_64x16 -DMODE=3 -DLANES=8 -DROWS=64 -DCOLUMNS=16
//! variant gemm_cpu_conv_dw_8_64x16 -DMODE=4 -DLANES=8 -DROWS=64 -DCOLUMNS=16
//! variant gemm_cpu_nn_16_64x64 -DMODE=0 -DLANES=16 -DROWS=64 -DCOLUMNS=64
//! variant gemm_cpu_tn_16_64x64 -DMODE=1 -DLANES=16 -DROWS=64 -DCOLUMNS=64
//! variant gemm_cpu_conv_16_64x64 -DMODE=2 -DLANES=16 -DROWS=64 -DCOLUMNS=64
//! variant gemm_cpu_conv_dx_16_64x64 -DMODE=3 -DLANES=16 -DROWS=64 -DCOLUMNS=64
//! variant gemm_cpu_conv_dw_16_64x64 -DMODE=4 -DLANES=16 -DROWS=64 -DCOLUMNS=64
//! variant gemm_cpu_nn_16_32x64 -DMODE=0 -DLANES=16 -DROWS=32 -DCOLUMNS=64
//! variant gemm_cpu_tn_16_32x64 -DMODE=1 -DLANES=16 -DROWS=32 -DCOLUMNS=64
//! variant gemm_cpu_conv_16_32x64 -DMODE=2 -DLANES=16 -DROWS=32 -DCOLUMNS=64
//! variant gemm_cpu_conv_dx_16_32x64 -DMODE=3 -DLANES=16 -DROWS=32 -DCOLUMNS=64
//! variant gemm_cpu_conv_dw_16_32x64 -DMODE=4 -DLANES=16 -DROWS=32 -DCOLUMNS=64
//! variant gemm_cpu_nn_16_128x32 -DMODE=0 -DLANES=16 -DROWS=128 -DCOLUMNS=32
//! variant gemm_cpu_tn_16_128x32 -DMODE=1 -DLANES=16 -DROWS=128 -DCOLUMNS=32
//! variant gemm_cpu_conv_16_128x32 -DMODE=2 -DLANES=16 -DROWS=128 -DCOLUMNS=32
//! variant gemm_cpu_conv_dx_16_128x32 -DMODE=3 -DLANES=16 -DROWS=128 -DCOLUMNS=32
//! variant gemm_cpu_conv_dw_16_128x32 -DMODE=4 -DLANES=16 -DROWS=128 -DCOLUMNS=32
//! variant gemm_cpu_nn_16_64x32 -DMODE=0 -DLANES=16 -DROWS=64 -DCOLUMNS=32
//! variant gemm_cpu_tn_16_64x32 -DMODE=1 -DLANES=16 -DROWS=64 -DCOLUMNS=32
//! variant gemm_cpu_conv_16_64x32 -DMODE=2 -DLANES=16 -DROWS=64 -DCOLUMNS=32
//! variant gemm_cpu_conv_dx_16_64x32 -DMODE=3 -DLANES=16 -DROWS=64 -DCOLUMNS=32
//! variant gemm_cpu_conv_dw_16_64x32 -DMODE=4 -DLANES=16 -DROWS=64 -DCOLUMNS=32
//! variant gemm_cpu_nn_16_128x16 -DMODE=0 -DLANES=16 -DROWS=128 -DCOLUMNS=16
//! variant gemm_cpu_tn_16_128x16 -DMODE=1 -DLANES=16 -DROWS=128 -DCOLUMNS=16
//! variant gemm_cpu_conv_16_128x16 -DMODE=2 -DLANES=16 -DROWS=128 -DCOLUMNS=16
//! variant gemm_cpu_conv_dx_16_128x16 -DMODE=3 -DLANES=16 -DROWS=128 -DCOLUMNS=16
//! variant gemm_cpu_conv_dw_16_128x16 -DMODE=4 -DLANES=16 -DROWS=128 -DCOLUMNS=16
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_basic : require

#include "finite.glsl"
#include "gemm_params.glsl"
#include "quotient.glsl"

#define BLOCKS (ROWS / LANES)
#define PER_LANE (COLUMNS / LANES)
#if PER_LANE >= 4
#define WIDTH 4
#define VEC vec4
#define PART(value, i) value[i]
#elif PER_LANE == 2
#define WIDTH 2
#define VEC vec2
#define PART(value, i) value[i]
#else
#define WIDTH 1
#define VEC float
#define PART(value, i) value
#endif
#define VECS (PER_LANE / WIDTH)

#if MODE == MODE_TN || MODE == MODE_CONV_DW
#define PAIRS_ALONG_M
#endif

layout(local_size_x = LANES) in;
layout(constant_id = 0) const uint kTail = 0;    // 1: innermost extent of k not a multiple of 4
layout(constant_id = 1) const uint kSpread = 0;  // 1: lines of C are not contiguous
layout(constant_id = 2) const uint kPad = 0;  // nn, one group: padding of rows of A and B
// Pairs of A: along k (then no tail), or along m if A is stored along m; of B: along n.
layout(constant_id = 3) const uint kPairs = 0;
layout(constant_id = 4) const uint kJoins = 0;  // RESIDUAL, KEEP, MOMENTS

#include "gemm_cpu_operand.glsl"

VEC acc[ROWS][VECS];
uint column[VECS];  // first of this lane's WIDTH columns, in range

// The operands of four steps along k: of A the lane's row of each block, of B its columns.
vec4 next_a[BLOCKS];
VEC next_b[4 * VECS];

// A stretch of k along which the operands lie evenly: all of k, a tap of a convolution or a line of
// its output.
struct Stretch {
  uint base[BLOCKS];    // where the lane's rows of A begin
  bool inside[BLOCKS];  // whether they exist; if not, they count as zeros
  uint row_of_b;
};

#if MODE == MODE_CONV_DW
int x0[BLOCKS];  // of the lane's rows: the first pixel in a line
#endif

#define EXISTING(x) mix(vec4(0), mix(vec4(0), x, exists), within)

// Loads the operands of four steps from `at` in a stretch that ends at `end`. Beyond that A counts
// as zero and B repeats an existing row.
void load(Stretch s, uint at, uint end) {
  const uvec4 k = kTail != 0 ? min(at + uvec4(0, 1, 2, 3), uvec4(end - 1)) : at + uvec4(0, 1, 2, 3);
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
#if MODE == MODE_CONV_DW
    const ivec4 x = x0[blk] + ivec4(k * p.stride_x);
    const uvec4 from = s.base[blk] + uvec4(clamp(x, 0, int(p.w) - 1)) * (p.c * p.groups);
    const bvec4 exists = lessThan(uvec4(x), uvec4(s.inside[blk] ? p.w : 0));  // x < 0 wraps around
#else
    const uvec4 from = s.base[blk] + k * (MODE == MODE_TN ? p.m : 1);
    const bvec4 exists = bvec4(s.inside[blk]);
#endif
    const bvec4 within = kTail != 0 ? lessThan(at + uvec4(0, 1, 2, 3), uvec4(end)) : bvec4(true);
    vec4 of_a[2];
    if ((kPairs & PAIRS_OF_A) == 0) {
      [[unroll]] for (uint u = 0; u < 4; ++u) of_a[0][u] = a.v[from[u]];
      next_a[blk] = EXISTING(of_a[0]);
    } else {
#ifdef PAIRS_ALONG_M
      if (blk % 2 != 0) continue;
      [[unroll]] for (uint u = 0; u < 4; ++u) {
        const vec2 x = pair(a, from[u]);
        of_a[0][u] = x[0];
        of_a[1][u] = x[1];
      }
      next_a[blk] = EXISTING(of_a[0]);
      next_a[blk + 1] = EXISTING(of_a[1]);
#else
      [[unroll]] for (uint u = 0; u < 4; u += 2) {
        const vec2 x = pair(a, from[u]);
        of_a[0][u] = x[0];
        of_a[0][u + 1] = x[1];
      }
      next_a[blk] = EXISTING(of_a[0]);
#endif
    }
  }
  [[unroll]] for (uint u = 0; u < 4; ++u)
    [[unroll]] for (uint j = 0; j < VECS; ++j) {
      const uint row = s.row_of_b + k[u];
      next_b[u * VECS + j] = load_b((row * p.groups + GROUP) * p.n + row * kPad + column[j], p.n - 1 - column[j]);
    }
}

#define ROW(r)                                                                 \
  {                                                                            \
    const vec4 s = subgroupBroadcast(next_a[blk], r);                          \
    [[unroll]] for (uint j = 0; j < VECS; ++j) {                               \
      VEC t = acc[ROW_OF(blk, r)][j];                                          \
      [[unroll]] for (uint u = 0; u < 4; ++u) t += s[u] * b_now[u * VECS + j]; \
      acc[ROW_OF(blk, r)][j] = t;                                              \
    }                                                                          \
  }

// Accumulates the four steps that are loaded.
void multiply() {
  const VEC b_now[4 * VECS] = next_b;
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)
#if LANES == 16
    ROW(8) ROW(9) ROW(10) ROW(11) ROW(12) ROW(13) ROW(14) ROW(15)
#endif
  }
}

// Loads the first four steps of the first stretch.
void load_first(Stretch s, uint at, uint end) {
#if LOADS_AHEAD
  load(s, at, end);
#endif
}

// Accumulates [begin, end) of a stretch, which is followed by the same part of the next one.
void run(Stretch s, Stretch next, uint begin, uint end) {
  for (uint at = begin; at < end; at += 4) {
#if LOADS_AHEAD
    multiply();
    const bool last = at + 4 >= end;
    Stretch of;
    of.row_of_b = last ? next.row_of_b : s.row_of_b;
    [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
      of.base[blk] = last ? next.base[blk] : s.base[blk];
      of.inside[blk] = last ? next.inside[blk] : s.inside[blk];
    }
    load(of, last ? begin : at + 4, end);
#else
    load(s, at, end);
    multiply();
#endif
  }
}

#if MODE == MODE_CONV || MODE == MODE_CONV_DX
// Returns whether tap (ky, kx) of a lane's row exists; `base` is where it reads A.
bool tap(uint image, ivec2 pixel, ivec2 k, out uint base) {
#if MODE == MODE_CONV
  const ivec2 at = pixel * ivec2(p.stride, p.stride_x) + k * int(p.dilation) - ivec2(p.pad_y, p.pad_x);
  const ivec2 size = ivec2(p.h, p.w);
  const bool inside = all(greaterThanEqual(at, ivec2(0))) && all(lessThan(at, size));
#else
  const ivec2 scaled = pixel + ivec2(p.pad_y, p.pad_x) - k * int(p.dilation);
  const uvec2 from = uvec2(max(scaled, ivec2(0)));
  const ivec2 at = ivec2(quotient(from.x, p.stride), quotient(from.y, p.stride));
  const ivec2 size = ivec2(p.oh, p.ow);
  const bool inside = all(greaterThanEqual(scaled, ivec2(0))) && all(lessThan(at, size)) &&
                      at * int(p.stride) == scaled;
#endif
  const uvec2 safe = uvec2(inside ? at : ivec2(0));
  base = (((image * uint(size.x) + safe.x) * uint(size.y) + safe.y) * p.groups + GROUP) * p.kc;
  return inside;
}

uint image[BLOCKS];
ivec2 pixel[BLOCKS];

Stretch stretch_of_tap(uint ky, uint kx) {
  Stretch s;
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk)
    s.inside[blk] = tap(image[blk], pixel[blk], ivec2(ky, kx), s.base[blk]);
  s.row_of_b = (ky * p.kw + kx) * p.kc;
  return s;
}
#endif

#if MODE == MODE_CONV_DW
int y0[BLOCKS];
uint of_channel[BLOCKS];

Stretch stretch_of_line(uint n, uint oy, uint line) {
  Stretch s;
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    const int y = int(oy * p.stride) + y0[blk];
    s.inside[blk] = y >= 0 && y < int(p.h);
    s.base[blk] = (n * p.h + (s.inside[blk] ? uint(y) : 0)) * (p.w * p.c * p.groups) + of_channel[blk];
  }
  s.row_of_b = line * p.ow;
  return s;
}
#endif

void accumulate(uint row0, uint lane) {
  uint row[BLOCKS];
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk)
    row[blk] = min(row0 + ROW_OF(blk, lane), LAST_ROW(blk));
#if MODE == MODE_NN || MODE == MODE_TN
  // Slices are whole steps of four, so that no step crosses from one into the next.
  const uint per_slice = MODE == MODE_NN ? p.k : quotient(p.k + 4 * p.slices - 1, 4 * p.slices) * 4;
  const uint first = MODE == MODE_NN ? 0 : SLICE * per_slice;
  const uint end = MODE == MODE_NN ? p.k : min(first + per_slice, p.k);
  Stretch s;
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    s.base[blk] = MODE == MODE_NN ? row[blk] * (p.k + kPad) : row[blk];
    s.inside[blk] = true;
  }
  s.row_of_b = 0;
  load_first(s, min(first, (p.k - 1) / 4 * 4), end);
  run(s, s, first, end);
#elif MODE == MODE_CONV || MODE == MODE_CONV_DX
  const uvec2 size = MODE == MODE_CONV ? uvec2(p.oh, p.ow) : uvec2(p.h, p.w);
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    const uint line = quotient(row[blk], size.y);
    image[blk] = quotient(line, size.x);
    pixel[blk] = ivec2(line - image[blk] * size.x, row[blk] - line * size.y);
  }
  Stretch s = stretch_of_tap(0, 0);
  load_first(s, 0, p.kc);
  for (uint ky = 0; ky < p.kh; ++ky)
    for (uint kx = 0; kx < p.kw; ++kx) {
      const bool ends = kx + 1 == p.kw;
      const Stretch next = stretch_of_tap(ends ? min(ky + 1, p.kh - 1) : ky, ends ? 0 : kx + 1);
      run(s, next, 0, p.kc);
      s = next;
    }
#else
  // Walks k by the output pixels of one line (image, oy) at a time; a slice is a range of lines.
  const uint lines = p.batch * p.oh;
  const uint per_slice = quotient(lines + p.slices - 1, p.slices);
  const uint first = SLICE * per_slice, last = min(first + per_slice, lines);
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    const uint t = row[blk] / p.c;
    y0[blk] = int(t / p.kw * p.dilation) - int(p.pad_y);
    x0[blk] = int(t % p.kw * p.dilation) - int(p.pad_x);
    of_channel[blk] = GROUP * p.c + row[blk] % p.c;
  }
  uint n = first / p.oh, oy = first % p.oh;
  Stretch s = stretch_of_line(min(n, p.batch - 1), oy, min(first, lines - 1));
  load_first(s, 0, p.ow);
  for (uint line = first; line < last; ++line) {  // avoids divisions, which run lane by lane
    oy = oy + 1 == p.oh ? 0 : oy + 1;
    n += oy == 0 ? 1 : 0;
    const bool ends = line + 1 == last;
    const Stretch next = stretch_of_line(ends ? 0 : n, ends ? 0 : oy, ends ? 0 : line + 1);
    run(s, next, 0, p.ow);
    s = next;
  }
#endif
}

// Makes the driver keep the sums and the operands of A in memory, because it cannot tell that nothing
// is read: no product has as many rows. Sums in registers would make LLVM's scheduler spill the
// operands. B may stay in registers.
void keep_in_memory() {
#if LOADS_AHEAD
  if (p.m == 0xffffffffu) acc[p.k % ROWS][0] += next_a[p.n % BLOCKS].x + next_b[0];
#endif
}

void main() {
  const uint lane = gl_SubgroupInvocationID;
  const uint row0 = gl_WorkGroupID.x * ROWS;
  [[unroll]] for (uint r = 0; r < ROWS; ++r)
    [[unroll]] for (uint j = 0; j < VECS; ++j) acc[r][j] = VEC(0);
  uint first_column[VECS];
  [[unroll]] for (uint j = 0; j < VECS; ++j) {
    first_column[j] = gl_WorkGroupID.y * COLUMNS + (lane * VECS + j) * WIDTH;
    column[j] = min(first_column[j], LAST_COLUMN);
  }
  accumulate(row0, lane);
  keep_in_memory();

  const uint ld = p.groups * p.n, out0 = SLICE * p.m * ld + GROUP * p.n;
  [[unroll]] for (uint j = 0; j < VECS; ++j)
    [[unroll]] for (uint i = 0; i < WIDTH; ++i) {
      const uint col = first_column[j] + i;
      if (col >= p.n) continue;
      const float shift = (p.epilogue & BIAS) != 0 ? side.v[GROUP * p.n + col] : 0.0;
      if ((kJoins & MOMENTS) != 0) {
        float sum = 0.0, squares = 0.0;
        [[unroll]] for (uint r = 0; r < ROWS; ++r) sum += row0 + r < p.m ? PART(acc[r][j], i) : 0.0;
        const float mean = sum / float(min(ROWS, p.m - row0));
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
          const float d = row0 + r < p.m ? PART(acc[r][j], i) - mean : 0.0;
          squares += d * d;
        }
        residual.v[2 * gl_WorkGroupID.x * ld + GROUP * p.n + col] = mean + shift;
        residual.v[(2 * gl_WorkGroupID.x + 1) * ld + GROUP * p.n + col] = squares;
      }
      uint line = quotient(row0, p.ow), x = row0 - line * p.ow;
      [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        const uint row = kSpread != 0 ? (line * p.line_step + p.line_offset) * p.ow + x : row0 + r;
        x = x + 1 == p.ow ? 0 : x + 1;
        line += x == 0 ? 1 : 0;
        if (row0 + r >= p.m) continue;
        const uint at = out0 + row * ld + col;
        float value = PART(acc[r][j], i) + shift;
        if ((kJoins & RESIDUAL) != 0) value += residual.v[at];
        value = (p.epilogue & RELU) != 0 ? relu_of(value) : value;
        if ((kJoins & KEEP) != 0) value = relu_grad(side.v[at], value);
        c.v[at] = value;
      }
    }
}
