#version 450
// C[m, n] = A[m, k] * B[k, n] (+ bias[n]) (ReLU), for devices whose "GPU" is a CPU's vector unit.
//
// One workgroup is one subgroup: no barriers, no shared memory. It computes a tile of ROWS by
// COLUMNS in registers (the driver spills them to the L1 cache). A lane owns WIDTH * VECS adjacent
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
layout(constant_id = 3) const uint kPairs = 0;  // of A: along k (then no tail), or along m if A is stored along m; of B: along n
layout(constant_id = 4) const uint kJoins = 0;  // RESIDUAL, KEEP, MOMENTS

#include "pairs.glsl"

VEC acc[ROWS][VECS];
uint column[VECS];  // first of this lane's WIDTH columns, in range

// acc += A[:, 4 steps] * B[4 steps, :]. av holds the lane's row of each block, row_of_b B's rows.
#define ROW(r)                                                                     \
  {                                                                                \
    const vec4 s = subgroupBroadcast(av[blk], r);                                  \
    [[unroll]] for (uint j = 0; j < VECS; ++j) {                                   \
      VEC t = acc[ROW_OF(blk, r)][j];                                              \
      t += s.x * bv[0][j];                                                         \
      t += s.y * bv[1][j];                                                         \
      t += s.z * bv[2][j];                                                         \
      t += s.w * bv[3][j];                                                         \
      acc[ROW_OF(blk, r)][j] = t;                                                  \
    }                                                                              \
  }

void multiply(vec4 av[BLOCKS], uvec4 row_of_b) {
  VEC bv[4][VECS];
  [[unroll]] for (uint i = 0; i < 4; ++i)
    [[unroll]] for (uint j = 0; j < VECS; ++j) {
      const uint at = (row_of_b[i] * p.groups + GROUP) * p.n + row_of_b[i] * kPad + column[j];
      bv[i][j] = load_b(at, p.n - 1 - column[j]);
    }
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)
#if LANES == 16
    ROW(8) ROW(9) ROW(10) ROW(11) ROW(12) ROW(13) ROW(14) ROW(15)
#endif
  }
}

// Four consecutive k starting at `at`, of which `valid` exist; each lane reads A at base + its own
// k. Beyond the end A counts as zero and B repeats an existing row.
void step4(uint base[BLOCKS], bool inside[BLOCKS], uint at, uint a_step, uint valid, uint b_row) {
  vec4 av[BLOCKS];
  const uvec4 i = kTail != 0 ? min(uvec4(0, 1, 2, 3), uvec4(valid - 1)) : uvec4(0, 1, 2, 3);
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    const uint first = base[blk] + at * a_step;
    if ((kPairs & PAIRS_OF_A) == 0) {
      av[blk] = vec4(a.v[first + i.x * a_step], a.v[first + i.y * a_step],
                     a.v[first + i.z * a_step], a.v[first + i.w * a_step]);
      continue;
    }
#ifdef PAIRS_ALONG_M
    if (blk % 2 != 0) continue;
    [[unroll]] for (uint u = 0; u < 4; ++u) {
      const vec2 x = pair(a, first + i[u] * a_step);
      av[blk][u] = x[0];
      av[blk + 1][u] = x[1];
    }
#else
    av[blk] = vec4(pair(a, first), pair(a, first + 2));
#endif
  }
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    if (kTail != 0) av[blk] = mix(vec4(0), av[blk], lessThan(uvec4(0, 1, 2, 3), uvec4(valid)));
#if MODE >= MODE_CONV
    av[blk] = inside[blk] ? av[blk] : vec4(0);
#endif
  }
  multiply(av, uvec4(b_row) + i);
}

// Accumulates [0, extent) along k: A is contiguous or strided by a_step, B's rows begin at b_row.
void run(uint base[BLOCKS], bool inside[BLOCKS], uint begin, uint end, uint a_step, uint b_row) {
  for (uint at = begin; at < end; at += 4) step4(base, inside, at, a_step, end - at, b_row + at);
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
  const ivec2 at = scaled / int(p.stride);
  const ivec2 size = ivec2(p.oh, p.ow);
  const bool inside = all(greaterThanEqual(scaled, ivec2(0))) && all(lessThan(at, size)) &&
                      at * int(p.stride) == scaled;
#endif
  const uvec2 safe = uvec2(inside ? at : ivec2(0));
  base = (((image * uint(size.x) + safe.x) * uint(size.y) + safe.y) * p.groups + GROUP) * p.kc;
  return inside;
}
#endif

void accumulate(uint row0, uint lane) {
  uint base[BLOCKS];
  bool inside[BLOCKS];
  uint row[BLOCKS];
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    row[blk] = min(row0 + ROW_OF(blk, lane), LAST_ROW(blk));
    inside[blk] = true;
  }
#if MODE == MODE_NN || MODE == MODE_TN
  // Slices are whole steps of four: a step reads past a slice's end.
  const uint per_slice = (p.k + 4 * p.slices - 1) / (4 * p.slices) * 4;
  const uint begin = SLICE * per_slice, end = min(begin + per_slice, p.k);
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk)
    base[blk] = MODE == MODE_NN ? row[blk] * (p.k + kPad) : row[blk];
  run(base, inside, begin, end, MODE == MODE_NN ? 1 : p.m, 0);
#elif MODE == MODE_CONV || MODE == MODE_CONV_DX
  const uvec2 size = MODE == MODE_CONV ? uvec2(p.oh, p.ow) : uvec2(p.h, p.w);
  uint image[BLOCKS];
  ivec2 pixel[BLOCKS];
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    const uint line = quotient(row[blk], size.y);
    image[blk] = quotient(line, size.x);
    pixel[blk] = ivec2(line - image[blk] * size.x, row[blk] - line * size.y);
  }
  for (uint ky = 0; ky < p.kh; ++ky)
    for (uint kx = 0; kx < p.kw; ++kx) {
      [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk)
        inside[blk] = tap(image[blk], pixel[blk], ivec2(ky, kx), base[blk]);
      run(base, inside, 0, p.kc, 1, (ky * p.kw + kx) * p.kc);
    }
#else
  // Walks k by the output pixels of one line (image, oy) at a time; a slice is a range of lines.
  const uint lines = p.batch * p.oh;
  const uint per_slice = (lines + p.slices - 1) / p.slices;
  const uint channels = p.c * p.groups;
  const uint first = SLICE * per_slice, last = min(first + per_slice, lines);
  int y0[BLOCKS], x0[BLOCKS], of_channel[BLOCKS];
  [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
    const uint t = row[blk] / p.c;
    y0[blk] = int(t / p.kw * p.dilation) - int(p.pad_y);
    x0[blk] = int(t % p.kw * p.dilation) - int(p.pad_x);
    of_channel[blk] = int(GROUP * p.c + row[blk] % p.c);
  }
  uint n = first / p.oh, oy = first % p.oh;
  for (uint line = first; line < last; ++line) {  // avoids divisions, which run lane by lane
    int line_base[BLOCKS];
    [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
      const int y = int(oy * p.stride) + y0[blk];
      inside[blk] = y >= 0 && y < int(p.h);
      line_base[blk] = (int(n * p.h) + (inside[blk] ? y : 0)) * int(p.w * channels) + of_channel[blk];
    }
    for (uint ox = 0; ox < p.ow; ox += 4) {
      vec4 av[BLOCKS];
      const uvec4 o = min(uvec4(ox) + uvec4(0, 1, 2, 3), uvec4(p.ow - 1));
      [[unroll]] for (uint blk = 0; blk < BLOCKS; ++blk) {
        const ivec4 x = x0[blk] + ivec4(o * p.stride_x);
        const ivec4 at = line_base[blk] + clamp(x, 0, int(p.w) - 1) * int(channels);
        const bvec4 ok = lessThan(uvec4(x), uvec4(inside[blk] ? p.w : 0));  // x < 0 wraps around
        if ((kPairs & PAIRS_OF_A) == 0) {
          av[blk] = vec4(a.v[at.x], a.v[at.y], a.v[at.z], a.v[at.w]);
        } else if (blk % 2 == 0) {
          [[unroll]] for (uint u = 0; u < 4; ++u) {
            const vec2 pixel = pair(a, at[u]);
            av[blk][u] = pixel[0];
            av[blk + 1][u] = pixel[1];
          }
        }
        av[blk] = mix(vec4(0), av[blk], ok);
        if (kTail != 0)
          av[blk] = mix(vec4(0), av[blk], lessThan(uvec4(ox) + uvec4(0, 1, 2, 3), uvec4(p.ow)));
      }
      multiply(av, line * p.ow + o);
    }
    oy = oy + 1 == p.oh ? 0 : oy + 1;
    n += oy == 0 ? 1 : 0;
  }
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
