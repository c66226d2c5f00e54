#version 450
// attention.comp for GPUs, by tiles of 32 rows and 32 columns of scores (Dao et al. 2022), with the
// same formulas and bindings. Rows are queries (grad_kv: keys); columns are the other side, which
// the workgroup walks. Scores are products of rows staged in shared memory, 32 elements of the head
// at a time. A tile of p (or ds) is staged too, to be multiplied with the columns' rows. Each of
// 8 x 8 invocations owns 4 x 4 scores, and of the results 4 rows and 4 of each 32 columns.
// Dispatch: x = tiles of rows, y = batch * heads (grad_kv: those of the keys), z = 1; grad_kv with APART: 2.
//! variant attention_tiled
//! variant attention_tiled_grad_q -DGRAD_Q
//! variant attention_tiled_grad_kv -DGRAD_KV
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint HEAD = 4;  // a multiple of 4
// For wide heads, separate workgroups compute dk (z = 0) and dv (z = 1): they need fewer registers.
layout(constant_id = 1) const bool APART = false;
#define CHUNKS ((HEAD + 31) / 32)

#if defined(GRAD_Q)
#define BUFFERS(B) B(0, Floats, q) B(1, Floats, k) B(2, Floats, v) B(3, Ints, lengths) \
    B(4, Floats, o) B(5, Floats, lse) B(6, Floats, go) B(7, Floats, dots) B(8, Floats, dq)
#elif defined(GRAD_KV)
#define BUFFERS(B) B(0, Floats, q) B(1, Floats, k) B(2, Floats, v) B(3, Ints, lengths) \
    B(4, Floats, lse) B(5, Floats, go) B(6, Floats, dots) B(7, Floats, dk) B(8, Floats, dv)
#else
#define BUFFERS(B) B(0, Floats, q) B(1, Floats, k) B(2, Floats, v) B(3, Ints, lengths) \
    B(4, Floats, o) B(5, Floats, lse)
#endif
#define PARAMS uint tq, tk, heads, causal, masked; float scale; \
    uint q_stride, q_offset, k_stride, k_offset, v_stride, v_offset, group;
#include "interface.glsl"

#define NOTHING uintBitsToFloat(0xFF800000u)  // -infinity
#define T gl_LocalInvocationID.x
#define TX (T % 8)
#define TY (T / 8)

shared float rows_[32 * 32], columns_[32 * 32];  // [element of the head, row]; a tile's columns also [column, element]
shared float p_[32 * 32];                        // [column, row]
shared float of_row_[32], of_column_[32], dot_of_column_[32];

// Loads elements 32 m ... of 32 rows of a tensor, as far as they exist, into `to`, at (element,
// row) or (row, element).
#define STAGE(to, turned, from, begin, stride, count, m)                                          \
  for (uint e = T; e < 256; e += 64) {                                                            \
    const uint row_ = turned ? e % 32 : e / 8, d_ = 4 * (turned ? e / 32 : e % 8);                \
    const bool there_ = row_ < (count) && 32 * (m) + d_ < HEAD;                                   \
    [[unroll]] for (uint i_ = 0; i_ < 4; ++i_)                                                    \
      to[turned ? (d_ + i_) * 32 + row_ : row_ * 32 + d_ + i_] =                                  \
          there_ ? from.v[(begin) + row_ * (stride) + 32 * (m) + d_ + i_] : 0.0;                  \
  }

// s[r][c] = row 4 TY + r of a tensor by row 4 TX + c of another.
#define PRODUCTS(s, a, a_begin, a_stride, a_count, b, b_begin, b_stride, b_count)                 \
  [[unroll]] for (uint r = 0; r < 4; ++r) s[r] = vec4(0);                                         \
  for (uint m = 0; m < CHUNKS; ++m) {                                                             \
    barrier();                                                                                    \
    STAGE(rows_, true, a, a_begin, a_stride, a_count, m)                                          \
    STAGE(columns_, true, b, b_begin, b_stride, b_count, m)                                       \
    barrier();                                                                                    \
    for (uint d = 0; d < 32; ++d) {                                                               \
      const uint at = d * 32 + 4 * TX;                                                            \
      const vec4 x = vec4(columns_[at], columns_[at + 1], columns_[at + 2], columns_[at + 3]);    \
      [[unroll]] for (uint r = 0; r < 4; ++r) s[r] += rows_[d * 32 + 4 * TY + r] * x;             \
    }                                                                                             \
  }

// sums[m][r] += p_'s row 4 TY + r by the columns' rows.
#define ADD_PRODUCTS(sums, b, b_begin, b_stride, b_count)                                         \
  [[unroll]] for (uint m = 0; m < CHUNKS; ++m) {                                                  \
    barrier();                                                                                    \
    STAGE(columns_, false, b, b_begin, b_stride, b_count, m)                                      \
    barrier();                                                                                    \
    for (uint j = 0; j < 32; ++j) {                                                               \
      const uint at = j * 32 + 4 * TX;                                                            \
      const vec4 x = vec4(columns_[at], columns_[at + 1], columns_[at + 2], columns_[at + 3]);    \
      [[unroll]] for (uint r = 0; r < 4; ++r) sums[m][r] += p_[j * 32 + 4 * TY + r] * x;          \
    }                                                                                             \
  }

// Row and column in the tile of the score s[r][c].
#define FOR_SCORES(r, c) \
  [[unroll]] for (uint r = 0; r < 4; ++r) [[unroll]] for (uint c = 0; c < 4; ++c)
#define P(r, c) p_[(4 * TX + c) * 32 + 4 * TY + r]

#define CLEAR(sums) \
  [[unroll]] for (uint m = 0; m < CHUNKS; ++m) [[unroll]] for (uint r = 0; r < 4; ++r) sums[m][r] = vec4(0);
#define STORE(to, begin, stride, count, sums, factor)                                             \
  [[unroll]] for (uint m = 0; m < CHUNKS; ++m)                                                    \
    [[unroll]] for (uint r = 0; r < 4; ++r)                                                       \
      if (4 * TY + r < (count) && 32 * m + 4 * TX < HEAD)                                         \
        [[unroll]] for (uint c = 0; c < 4; ++c)                                                   \
          to.v[(begin) + (4 * TY + r) * (stride) + 32 * m + 4 * TX + c] = sums[m][r][c] * (factor);

void main() {
#ifdef GRAD_KV
  const uint kv_heads = heads / group, b = gl_WorkGroupID.y / kv_heads, kv_head = gl_WorkGroupID.y % kv_heads;
#else
  const uint b = gl_WorkGroupID.y / heads, h = gl_WorkGroupID.y % heads, kv_head = h / group;
#endif
  const uint keys = masked != 0 ? min(uint(max(lengths.v[b], 0)), tk) : tk;
  const uint first = gl_WorkGroupID.x * 32, width = heads * HEAD;
  const uint k0 = b * tk * k_stride + k_offset + kv_head * HEAD;
  const uint v0 = b * tk * v_stride + v_offset + kv_head * HEAD;
  vec4 s[4];

#ifndef GRAD_KV
  const uint q0 = b * tq * q_stride + q_offset + h * HEAD;
  const uint o0 = b * tq * width + h * HEAD, row0 = gl_WorkGroupID.y * tq;
  const uint count = min(tq - first, 32);
  // Number of keys that the tile's last query sees, and query i.
  const uint end = causal != 0 ? min(keys, first + count + tk - tq) : keys;
  // Branch-free: each branch among the scores doubles the memory of SwiftShader's compiler.
  const uint ahead = causal != 0 ? tk - tq + 1 : keys;
#define SEES(i) min(keys, (i) + ahead)
  const uint q_at = q0 + first * q_stride, o_at = o0 + first * width;
  vec4 sums[CHUNKS][4];
  CLEAR(sums)
#ifndef GRAD_Q
  float top = NOTHING, total = 0.0;  // of row T
  for (uint j0 = 0; j0 < end; j0 += 32) {
    PRODUCTS(s, q, q_at, q_stride, count, k, k0 + j0 * k_stride, k_stride, tk - j0)
    FOR_SCORES(r, c) P(r, c) = j0 + 4 * TX + c < SEES(first + 4 * TY + r) ? s[r][c] * scale : NOTHING;
    barrier();
    if (T < 32) {
      float above = top, sum = 0.0;
      for (uint j = 0; j < 32; ++j) above = max(above, p_[j * 32 + T]);
      for (uint j = 0; j < 32; ++j) {
        const float score = p_[j * 32 + T], p = score == NOTHING ? 0.0 : exp(score - above);
        p_[j * 32 + T] = p;
        sum += p;
      }
      // Both are -infinity until the first visible key: nothing to rescale.
      const float rescale = top == NOTHING ? 0.0 : exp(top - above);
      total = total * rescale + sum;
      top = above;
      of_row_[T] = rescale;
    }
    barrier();
    [[unroll]] for (uint m = 0; m < CHUNKS; ++m)
      [[unroll]] for (uint r = 0; r < 4; ++r) sums[m][r] *= of_row_[4 * TY + r];
    ADD_PRODUCTS(sums, v, v0 + j0 * v_stride, v_stride, tk - j0)
  }
  barrier();
  if (T < 32) of_row_[T] = total > 0.0 ? 1.0 / total : 0.0;
  if (T < count) lse.v[row0 + first + T] = total > 0.0 ? top + log(total) : 0.0;
  barrier();
  STORE(o, o_at, width, count, sums, of_row_[4 * TY + r])
#else
  if (T < 32) {
    float dot_i = 0.0;
    for (uint d = 0; T < count && d < HEAD; ++d) dot_i += go.v[o_at + T * width + d] * o.v[o_at + T * width + d];
    of_row_[T] = dot_i;
    of_column_[T] = T < count ? lse.v[row0 + first + T] : 0.0;
    if (T < count) dots.v[row0 + first + T] = dot_i;
  }
  for (uint j0 = 0; j0 < end; j0 += 32) {
    vec4 p[4];
    PRODUCTS(p, q, q_at, q_stride, count, k, k0 + j0 * k_stride, k_stride, tk - j0)
    FOR_SCORES(r, c) p[r][c] = j0 + 4 * TX + c < SEES(first + 4 * TY + r)
                                   ? exp(p[r][c] * scale - of_column_[4 * TY + r]) : 0.0;
    PRODUCTS(s, go, o_at, width, count, v, v0 + j0 * v_stride, v_stride, tk - j0)
    FOR_SCORES(r, c) P(r, c) = p[r][c] * (s[r][c] - of_row_[4 * TY + r]) * scale;
    ADD_PRODUCTS(sums, k, k0 + j0 * k_stride, k_stride, tk - j0)
  }
  STORE(dq, q_at, q_stride, count, sums, 1.0)
#endif
#else
  const uint count = min(tk - first, 32);
  // The first query that sees any key of the tile, and key j.
  const uint begin = causal != 0 && first + tq > tk ? first + tq - tk : 0;
#define SEEN_FROM(j) ((j) >= keys ? tq : causal != 0 && (j) + tq > tk ? (j) + tq - tk : 0)
  const uint k_at = k0 + first * k_stride, v_at = v0 + first * v_stride;
  const bool with_dk = !APART || gl_WorkGroupID.z == 0, with_dv = !APART || gl_WorkGroupID.z == 1;
  vec4 sums[CHUNKS][4], sums_v[CHUNKS][4];
  CLEAR(sums)
  if (!APART) CLEAR(sums_v)
  for (uint h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const uint q0 = b * tq * q_stride + q_offset + h * HEAD;
    const uint o0 = b * tq * width + h * HEAD, row0 = (b * heads + h) * tq;
    for (uint i0 = begin; i0 < tq; i0 += 32) {
      barrier();
      if (T < 32) {
        of_column_[T] = i0 + T < tq ? lse.v[row0 + i0 + T] : 0.0;
        dot_of_column_[T] = i0 + T < tq ? dots.v[row0 + i0 + T] : 0.0;
      }
      vec4 p[4];
      PRODUCTS(p, k, k_at, k_stride, count, q, q0 + i0 * q_stride, q_stride, tq - i0)
      FOR_SCORES(r, c) {
        const uint i = i0 + 4 * TX + c;
        p[r][c] = i < tq && i >= SEEN_FROM(first + 4 * TY + r) ? exp(p[r][c] * scale - of_column_[4 * TX + c]) : 0.0;
      }
      if (with_dv) {
        FOR_SCORES(r, c) P(r, c) = p[r][c];
        if (APART) ADD_PRODUCTS(sums, go, o0 + i0 * width, width, tq - i0)
        else ADD_PRODUCTS(sums_v, go, o0 + i0 * width, width, tq - i0)
      }
      if (with_dk) {
        PRODUCTS(s, v, v_at, v_stride, count, go, o0 + i0 * width, width, tq - i0)
        FOR_SCORES(r, c) P(r, c) = p[r][c] * (s[r][c] - dot_of_column_[4 * TX + c]) * scale;
        ADD_PRODUCTS(sums, q, q0 + i0 * q_stride, q_stride, tq - i0)
      }
    }
  }
  if (with_dk) STORE(dk, k_at, k_stride, count, sums, 1.0)
  if (APART && with_dv) STORE(dv, v_at, v_stride, count, sums, 1.0)
  if (!APART) STORE(dv, v_at, v_stride, count, sums_v, 1.0)
#endif
}
