#version 450
// C[m, n] = A[m, k] * B[k, n] (+ bias[n]) (ReLU) on matrix units (VK_KHR_cooperative_matrix), with
// operands of 16 bits and sums of 32.
//
// Subgroups compute a tile of C, kDown by kAcross; each holds kRows x kColumns matrices of it. Tiles
// of A and B go through shared memory, rounded to 16 bits, while the next tiles are loaded into
// registers. C goes through shared memory, too, because which elements of a matrix an invocation
// holds is known only there.
//
// Invocations load four neighbouring elements at a time: along k of A where it is stored by rows,
// along the rows where it is stored by k. kWide says of which operands these are vectors in memory,
// whose extents along that axis are multiples of four.
//
// PARTS 1: A and B are rounded, for products of mixed precision. PARTS 3: each float is the sum of
// three bfloat16, which together have all of its 24 bits. Six of the nine products of parts give C
// to the accuracy of float32; the other three are too small to matter.
//
// Bindings: 0 a, 1 b [k, n], 2 side, 3 residual, 4 c [slices, m, n]. Modes and epilogue:
// gemm_params.glsl.
// Dispatch: x = ceil(m / tile rows), y = ceil(n / tile columns), z = groups * slices of k.
//
//! variant gemm_matrix_bf16 -DFORMAT=1 -DPARTS=1
//! variant gemm_matrix_fp16 -DFORMAT=2 -DPARTS=1
//! variant gemm_matrix_bf16x3 -DFORMAT=1 -DPARTS=3
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#if FORMAT == 1
#extension GL_EXT_bfloat16 : require
#define ELEMENT bfloat16_t
#define FOUR uvec2
#else
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define ELEMENT float16_t
#define FOUR f16vec4
#endif
#include "../finite.glsl"
#include "../gemm_params.glsl"
#include "../rounding.glsl"

layout(constant_id = 0) const uint kMode = 0;
layout(constant_id = 1) const uint kSpread = 0;  // 1: lines of C are not contiguous
layout(constant_id = 2) const uint M = 16;       // of a matrix of the device: [M, K] * [K, N]
layout(constant_id = 3) const uint N = 16;
layout(constant_id = 4) const uint K = 16;
layout(constant_id = 5) const uint kRows = 4;     // matrices of C in a subgroup
layout(constant_id = 6) const uint kColumns = 4;
layout(constant_id = 7) const uint kDown = 2;     // subgroups along the rows of a tile
layout(constant_id = 8) const uint kAcross = 2;   // and along its columns
layout(constant_id = 9) const uint kLanes = 128;  // of all subgroups
layout(constant_id = 10) const uint kWide = 0;    // 1: A, 2: B
layout(constant_id = 11) const uint kJoins = 0;   // RESIDUAL, KEEP
layout(local_size_x_id = 9) in;

#define MODE kMode
#define DEPTH 32
#define TILE_ROWS (M * kRows * kDown)
#define TILE_COLUMNS (N * kColumns * kAcross)
#define FOURS_OF_A (TILE_ROWS * DEPTH / 4 / kLanes)  // that an invocation loads
#define FOURS_OF_B (TILE_COLUMNS * DEPTH / 4 / kLanes)

layout(binding = 0, std430) readonly buffer A { float a[]; };
layout(binding = 0, std430) readonly buffer WideA { vec4 wide_a[]; };
layout(binding = 1, std430) readonly buffer B { float b[]; };
layout(binding = 1, std430) readonly buffer WideB { vec4 wide_b[]; };
layout(binding = 2, std430) readonly buffer Side { float side[]; };
layout(binding = 3, std430) readonly buffer Residual { float residual[]; };
layout(binding = 4, std430) writeonly buffer C { float c[]; };
layout(binding = 4, std430) writeonly buffer WideC { vec4 wide_c[]; };
layout(push_constant) uniform Push { GemmParams p; };
#include "../gemm_operand.glsl"

#define ALONG_K (MODE == MODE_NN || MODE == MODE_CONV || MODE == MODE_CONV_DX)

// Lines of a tile in fours of elements, with padding so that they begin in different banks. A's lines
// are rows, or positions along k if A is stored by these.
#define A_STRIDE (ALONG_K ? DEPTH / 4 + 2 : TILE_ROWS / 4 + 2)
#define A_LINES (ALONG_K ? TILE_ROWS : DEPTH)
#define B_STRIDE (TILE_COLUMNS / 4 + 2)
shared FOUR tile_a[PARTS * A_LINES * A_STRIDE];
shared FOUR tile_b[PARTS * DEPTH * B_STRIDE];
shared vec4 tile_c[kDown * kAcross * M * N / 4];

vec4 next_a[FOURS_OF_A], next_b[FOURS_OF_B];

#define I gl_LocalInvocationIndex
// The line and the place in it of four `w` of this invocation. Along k, the place is the same for
// all of them; along the rows, too, because kLanes is a multiple of a line's fours.
#define FOURS_OF_LINE (ALONG_K ? DEPTH / 4 : TILE_ROWS / 4)
#define LINE_OF_A(w) (I / FOURS_OF_LINE + (w) * (kLanes / FOURS_OF_LINE))
#define PLACE_OF_A (I % FOURS_OF_LINE)

// The parts of the lines of A that this invocation loads, and those of the elements of its fours
// (only the first if they are vectors). Those along k move on from tile to tile.
#define MOST (FOURS_OF_A > 4 ? FOURS_OF_A : 4)
Part lines[MOST], elements[4];
uvec3 positions[MOST];
#define ROWS_KEPT (ALONG_K ? FOURS_OF_A : 4)
#define KS_KEPT (ALONG_K ? ((kWide & 1) != 0 ? 1 : 4) : FOURS_OF_A)
#define ROW_KEPT(i) (ALONG_K ? LINE_OF_A(i) : PLACE_OF_A * 4 + (i))
#define K_KEPT(i) (ALONG_K ? PLACE_OF_A * 4 + (i) : LINE_OF_A(i))

void keep(uint row0, uint k0) {
  [[unroll]] for (uint i = 0; i < ROWS_KEPT; ++i) {
    const Part part = part_of_row(row0 + ROW_KEPT(i));
    if (ALONG_K) lines[i] = part;
    else elements[i] = part;
  }
  [[unroll]] for (uint i = 0; i < KS_KEPT; ++i) positions[i] = position_of(k0 + K_KEPT(i));
}

void fetch(uint column0, uint k0, uint end) {
  [[unroll]] for (uint i = 0; i < KS_KEPT; ++i) {
    const uint k = k0 + K_KEPT(i);
    const Part part = part_of_k(positions[i], k, k < end);
    if (ALONG_K) elements[i] = part;
    else lines[i] = part;
  }
  [[unroll]] for (uint w = 0; w < FOURS_OF_A; ++w) {
    if ((kWide & 1) != 0) {
      const int at = ALONG_K ? place_of_a(lines[w], elements[0]) : place_of_a(elements[0], lines[w]);
      next_a[w] = at < 0 ? vec4(0) : wide_a[at / 4];
    } else {
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        const int at = ALONG_K ? place_of_a(lines[w], elements[i]) : place_of_a(elements[i], lines[w]);
        next_a[w][i] = at < 0 ? 0.0 : a[at];
      }
    }
  }
  [[unroll]] for (uint w = 0; w < FOURS_OF_B; ++w) {
    const uint four = w * kLanes + I;
    const uint k = k0 + four / (TILE_COLUMNS / 4), column = column0 + four % (TILE_COLUMNS / 4) * 4;
    next_b[w] = four_of_b(k, column, end);
  }
}

void move_on(uvec3 step) {
  [[unroll]] for (uint i = 0; i < KS_KEPT; ++i) positions[i] = moved(positions[i], step);
}

// Returns four floats, rounded; of several parts, leaves the rounding errors in `rest`. How a conversion
// rounds depends on the device: NVIDIA's to bfloat16 is not to the nearest, so that this one is done on
// integers; of others, ops/gemm_check.cpp finds out. Some may take float16 below 6e-5 for zero.
FOUR rounded(inout vec4 rest) {
#if FORMAT == 1
  uvec4 bits = floatBitsToUint(rest);
  [[unroll]] for (uint i = 0; i < 4; ++i) bits[i] = to_bfloat16(bits[i]);
#if PARTS > 1
  rest -= uintBitsToFloat(bits);
#endif
  return bits.xz >> 16 | bits.yw;
#else
  return FOUR(rest);
#endif
}

void place() {
  [[unroll]] for (uint w = 0; w < FOURS_OF_A; ++w)
    [[unroll]] for (uint part = 0; part < PARTS; ++part)
      tile_a[(part * A_LINES + LINE_OF_A(w)) * A_STRIDE + PLACE_OF_A] = rounded(next_a[w]);
  [[unroll]] for (uint w = 0; w < FOURS_OF_B; ++w) {
    const uint four = w * kLanes + I;
    const uint k = four / (TILE_COLUMNS / 4), at = four % (TILE_COLUMNS / 4);
    [[unroll]] for (uint part = 0; part < PARTS; ++part)
      tile_b[(part * DEPTH + k) * B_STRIDE + at] = rounded(next_b[w]);
  }
}

#define MATRIX_A coopmat<ELEMENT, gl_ScopeSubgroup, M, K, gl_MatrixUseA>
#define MATRIX_B coopmat<ELEMENT, gl_ScopeSubgroup, K, N, gl_MatrixUseB>
#define MATRIX_C coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>

MATRIX_C acc[kRows * kColumns];

// acc += A's part * B's part, along the whole depth of the tiles.
void multiply(uint part_a, uint part_b, uint row, uint column) {
  [[unroll]] for (uint k = 0; k < DEPTH; k += K) {
    MATRIX_A left[kRows];
    [[unroll]] for (uint i = 0; i < kRows; ++i) {
      if (ALONG_K)
        coopMatLoad(left[i], tile_a, (part_a * A_LINES + row + i * M) * A_STRIDE + k / 4, A_STRIDE,
                    gl_CooperativeMatrixLayoutRowMajor);
      else
        coopMatLoad(left[i], tile_a, (part_a * A_LINES + k) * A_STRIDE + (row + i * M) / 4, A_STRIDE,
                    gl_CooperativeMatrixLayoutColumnMajor);
    }
    [[unroll]] for (uint j = 0; j < kColumns; ++j) {
      MATRIX_B right;
      coopMatLoad(right, tile_b, (part_b * DEPTH + k) * B_STRIDE + (column + j * N) / 4, B_STRIDE,
                  gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint i = 0; i < kRows; ++i)
        acc[i * kColumns + j] = coopMatMulAdd(left[i], right, acc[i * kColumns + j]);
    }
  }
}

// Writes a matrix of C from this subgroup's part of tile_c.
void write(uint first_row, uint first_column) {
  const uint from = gl_SubgroupID * M * N / 4;
  for (uint e = gl_SubgroupInvocationID; e < M * N / 4; e += gl_SubgroupSize) {
    write_four(first_row + e / (N / 4), first_column + e % (N / 4) * 4, tile_c[from + e]);
  }
}

void main() {
  const uint row0 = gl_WorkGroupID.x * TILE_ROWS, column0 = gl_WorkGroupID.y * TILE_COLUMNS;
  const uint row = gl_SubgroupID / kAcross * (M * kRows), column = gl_SubgroupID % kAcross * (N * kColumns);
  const uint per_slice = (p.k + p.slices - 1) / p.slices;
  const uint begin = SLICE * per_slice, end = min(begin + per_slice, p.k);
  const uvec3 step = position_of(DEPTH);
  [[unroll]] for (uint i = 0; i < kRows * kColumns; ++i) acc[i] = MATRIX_C(0.0);
  keep(row0, begin);
  fetch(column0, begin, end);
  for (uint k0 = begin; k0 < end; k0 += DEPTH) {
    place();
    barrier();
    if (k0 + DEPTH < end) {
      move_on(step);
      fetch(column0, k0 + DEPTH, end);
    }
#if PARTS == 3  // the smallest first
    multiply(0, 2, row, column);
    multiply(1, 1, row, column);
    multiply(2, 0, row, column);
    multiply(0, 1, row, column);
    multiply(1, 0, row, column);
#endif
    multiply(0, 0, row, column);
    barrier();
  }
  [[unroll]] for (uint i = 0; i < kRows * kColumns; ++i) {
    coopMatStore(acc[i], tile_c, gl_SubgroupID * M * N / 4, N / 4, gl_CooperativeMatrixLayoutRowMajor);
    subgroupMemoryBarrierShared();
    subgroupBarrier();
    write(row0 + row + i / kColumns * M, column0 + column + i % kColumns * N);
    subgroupBarrier();
  }
}
