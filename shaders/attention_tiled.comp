#version 450
// attention.comp for GPUs, by tiles of TILE rows and TILE columns of scores (Dao et al. 2022), with
// the same formulas and bindings. Rows are queries (grad_kv: keys); columns are the other side,
// which the workgroup walks. Scores are products of rows staged in shared memory, 32 elements of the
// head at a time. A tile of p (or ds) is staged too, to be multiplied with the columns' rows.
// Invocation (TX, TY) of 8 x LANES / 8 owns ROWS rows of the tile; of these, and of the results, it
// owns 4 of each 32 columns. All memory but that of lse and D is read as vectors of 4.
// Dispatch: x = tiles of rows, y = batch * heads (grad_kv: those of the keys), z = 1; grad_kv with APART: 2.
//! variant attention_tiled
//! variant attention_tiled_grad_q -DGRAD_Q
//! variant attention_tiled_grad_kv -DGRAD_KV
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;               // LANES
layout(constant_id = 1) const uint HEAD = 4;  // a multiple of 4
// For wide heads, separate workgroups compute dk (z = 0) and dv (z = 1): they need fewer registers.
layout(constant_id = 2) const bool APART = false;
layout(constant_id = 3) const uint TILE = 32;  // 32 (15 KB of shared memory) or 64 (38 KB)

#if defined(GRAD_Q)
#define BUFFERS(B) B(0, Vectors, q) B(1, Vectors, k) B(2, Vectors, v) B(3, Ints, lengths) \
    B(4, Vectors, o) B(5, Floats, lse) B(6, Vectors, go) B(7, Floats, dots) B(8, Vectors, dq)
#elif defined(GRAD_KV)
#define BUFFERS(B) B(0, Vectors, q) B(1, Vectors, k) B(2, Vectors, v) B(3, Ints, lengths) \
    B(4, Floats, lse) B(5, Vectors, go) B(6, Floats, dots) B(7, Vectors, dk) B(8, Vectors, dv)
#else
#define BUFFERS(B) B(0, Vectors, q) B(1, Vectors, k) B(2, Vectors, v) B(3, Ints, lengths) \
    B(4, Vectors, o) B(5, Floats, lse)
#endif
#define PARAMS uint tq, tk, heads, causal, masked; float scale; \
    uint q_stride, q_offset, k_stride, k_offset, v_stride, v_offset, group;
#include "interface.glsl"

#define NOTHING uintBitsToFloat(0xFF800000u)  // -infinity
#define LANES gl_WorkGroupSize.x
#define T gl_LocalInvocationID.x
#define TX (T % 8)
#define TY (T / 8)

#define QUADS (HEAD / 4)             // vectors of a head
#define SLABS ((HEAD + 31) / 32)     // parts of a head of 8 vectors, one for each TX
#define ROWS (TILE * 8 / LANES)      // rows of the tile that an invocation owns, stages and stores
#define WIDE (TILE / 32)             // vectors of 4 scores that it owns of each
#define ROW(r) (TY + LANES / 8 * (r))
#define COLUMNS(w) (32 * (w) + 4 * TX + uvec4(0, 1, 2, 3))  // of a vector of scores
#define LINE 9                         // vectors from one staged row to the next: neighbours lie in different banks
#define P_LINE (TILE / 4 + 1)
// Staged whole rows of the columns' side: as many as fit.
#define DEPTH (SLABS == 1 ? TILE : SLABS == 2 ? TILE / 2 : SLABS <= 4 ? TILE / 4 : TILE / 8)
#define DEPTH_LOADS ((DEPTH * 8 * SLABS + LANES - 1) / LANES)

shared vec4 rows_[TILE * LINE];     // [row, 8 vectors of the head]
shared vec4 columns_[TILE * LINE];  // the same at SLOT(column), or [column, SLABS * 8 vectors of the head]
shared vec4 p_[TILE * P_LINE];      // [row, vector of columns]
shared vec4 parts_[TILE * 2];       // [row, TX]: parts of a sum or maximum
#ifdef GRAD_KV
shared vec4 lse_[TILE / 4], dots_[TILE / 4];  // of the columns
#endif

// The line of column j. An invocation owns four neighbouring columns, yet neighbouring invocations read
// neighbouring lines, which lie in different banks.
#define SLOT(j) ((j) % 32 / 4 + (j) % 4 * 8 + (j) / 32 * 32)

#define EACH(i, count) [[unroll]] for (uint i = 0; i < (count); ++i)

// Vector `quad` of row `row` of `count`; zero if there is none. No branch: among the scores, each
// doubles the memory of SwiftShader's compiler.
#define VECTOR(from, begin, line, row, count, quad)                                     \
  mix(vec4(0), from.v[(begin) + min(row, (count) - 1) * (line) + min(quad, QUADS - 1)], \
      bvec4((row) < (count) && (quad) < QUADS))

// s[r][w][c] = row ROW(r) of a tensor by row COLUMNS(w) of another.
#define PRODUCTS(s, a, a_begin, a_line, a_count, b, b_begin, b_line, b_count)                      \
  EACH(r, ROWS) EACH(w, WIDE) s[r][w] = vec4(0);                                                   \
  for (uint m = 0; m < SLABS; ++m) {                                                               \
    vec4 of_a[ROWS], of_b[ROWS];                                                                   \
    EACH(r, ROWS) of_a[r] = VECTOR(a, a_begin, a_line, ROW(r), a_count, 8 * m + TX);               \
    EACH(r, ROWS) of_b[r] = VECTOR(b, b_begin, b_line, ROW(r), b_count, 8 * m + TX);               \
    barrier();                                                                                     \
    EACH(r, ROWS) rows_[ROW(r) * LINE + TX] = of_a[r];                                             \
    EACH(r, ROWS) columns_[SLOT(ROW(r)) * LINE + TX] = of_b[r];                                    \
    barrier();                                                                                     \
    for (uint d = 0; d < 8; ++d) {                                                                 \
      vec4 x[ROWS];                                                                                \
      EACH(r, ROWS) x[r] = rows_[ROW(r) * LINE + d];                                               \
      EACH(w, WIDE) EACH(c, 4) {                                                                   \
        const vec4 y = columns_[(32 * w + 8 * c + TX) * LINE + d];                                 \
        EACH(i, 4) EACH(r, ROWS) s[r][w][c] += x[r][i] * y[i];                                     \
      }                                                                                            \
    }                                                                                              \
  }

// sums[r][m] += p_'s row ROW(r) by vector 8 m + TX of the columns' rows.
#define ADD_PRODUCTS(sums, b, b_begin, b_line, b_count)                                            \
  for (uint j = 0; j < min(TILE, b_count); j += DEPTH) {                                           \
    vec4 of_b[DEPTH_LOADS];                                                                        \
    EACH(i, DEPTH_LOADS) {                                                                         \
      const uint e = LANES * i + T, at = j + e / (8 * SLABS);                                      \
      of_b[i] = VECTOR(b, b_begin, b_line, at, b_count, e % (8 * SLABS));                          \
    }                                                                                              \
    barrier();                                                                                     \
    EACH(i, DEPTH_LOADS) columns_[LANES * i + T] = of_b[i];                                        \
    barrier();                                                                                     \
    for (uint d = 0; d < DEPTH / 4; ++d) {                                                         \
      vec4 x[ROWS];                                                                                \
      EACH(r, ROWS) x[r] = p_[ROW(r) * P_LINE + j / 4 + d];                                        \
      EACH(i, 4) EACH(m, SLABS) {                                                                  \
        const vec4 y = columns_[(4 * d + i) * (8 * SLABS) + 8 * m + TX];                           \
        EACH(r, ROWS) sums[r][m] += x[r][i] * y;                                                   \
      }                                                                                            \
    }                                                                                              \
  }

#define P(r, w) p_[ROW(r) * P_LINE + 8 * (w) + TX]
#define PART(r) parts_[ROW(r) * 2 + TX / 4][TX % 4]
#define CLEAR(sums) EACH(r, ROWS) EACH(m, SLABS) sums[r][m] = vec4(0);
#define STORE(to, begin, line, count, sums, factor)                             \
  EACH(r, ROWS) EACH(m, SLABS)                                                  \
    if (ROW(r) < (count) && 8 * m + TX < QUADS)                                 \
      to.v[(begin) + ROW(r) * (line) + 8 * m + TX] = sums[r][m] * (factor);

float sum_of(vec4 v) { return v.x + v.y + v.z + v.w; }
float largest_of(vec4 v) { return max(max(v.x, v.y), max(v.z, v.w)); }
float sum_of_parts(uint row) { return sum_of(parts_[row * 2]) + sum_of(parts_[row * 2 + 1]); }
float largest_of_parts(uint row) { return max(largest_of(parts_[row * 2]), largest_of(parts_[row * 2 + 1])); }

void main() {
#ifdef GRAD_KV
  const uint kv_heads = heads / group, b = gl_WorkGroupID.y / kv_heads, kv_head = gl_WorkGroupID.y % kv_heads;
#else
  const uint b = gl_WorkGroupID.y / heads, h = gl_WorkGroupID.y % heads, kv_head = h / group;
#endif
  const uint keys = masked != 0 ? min(uint(max(lengths.v[b], 0)), tk) : tk;
  // In vectors, as all distances below.
  const uint q_line = q_stride / 4, k_line = k_stride / 4, v_line = v_stride / 4, o_line = heads * QUADS;
  const uint k0 = b * tk * k_line + k_offset / 4 + kv_head * QUADS;
  const uint v0 = b * tk * v_line + v_offset / 4 + kv_head * QUADS;
  vec4 s[ROWS][WIDE];

#ifndef GRAD_KV
  // Causal, the last rows see the most: they come first, so that the longest do not start last.
  const uint first = (gl_NumWorkGroups.x - 1 - gl_WorkGroupID.x) * TILE;
  const uint q0 = b * tq * q_line + q_offset / 4 + h * QUADS;
  const uint o0 = b * tq * o_line + h * QUADS, row0 = gl_WorkGroupID.y * tq;
  const uint count = min(tq - first, TILE);
  // Number of keys that the tile's last query sees, and query i.
  const uint end = causal != 0 ? min(keys, first + count + tk - tq) : keys;
  const uint ahead = causal != 0 ? tk - tq + 1 : keys;
#define SEES(i) min(keys, (i) + ahead)
  const uint q_at = q0 + first * q_line, o_at = o0 + first * o_line;
  vec4 sums[ROWS][SLABS];
  CLEAR(sums)
#ifndef GRAD_Q
  float top[ROWS], total[ROWS];  // total: over this invocation's columns
  EACH(r, ROWS) {
    top[r] = NOTHING;
    total[r] = 0.0;
  }
  for (uint j0 = 0; j0 < end; j0 += TILE) {
    PRODUCTS(s, q, q_at, q_line, count, k, k0 + j0 * k_line, k_line, end - j0)
    EACH(r, ROWS) {
      const uint sees = SEES(first + ROW(r));
      float above = NOTHING;
      EACH(w, WIDE) {
        s[r][w] = mix(vec4(NOTHING), s[r][w] * scale, lessThan(j0 + COLUMNS(w), uvec4(sees)));
        above = max(above, largest_of(s[r][w]));
      }
      PART(r) = above;
    }
    barrier();
    EACH(r, ROWS) {
      const float above = max(top[r], largest_of_parts(ROW(r)));
      // Both are -infinity until the first visible key: nothing to rescale.
      const float rescale = top[r] == NOTHING ? 0.0 : exp(top[r] - above);
      total[r] *= rescale;
      top[r] = above;
      EACH(w, WIDE) {
        s[r][w] = mix(exp(s[r][w] - above), vec4(0), equal(s[r][w], vec4(NOTHING)));
        total[r] += sum_of(s[r][w]);
        P(r, w) = s[r][w];
      }
      EACH(m, SLABS) sums[r][m] *= rescale;
    }
    ADD_PRODUCTS(sums, v, v0 + j0 * v_line, v_line, end - j0)
  }
  EACH(r, ROWS) PART(r) = total[r];
  barrier();
  EACH(r, ROWS) {
    const float all = sum_of_parts(ROW(r));
    if (TX == 0 && ROW(r) < count) lse.v[row0 + first + ROW(r)] = all > 0.0 ? top[r] + log(all) : 0.0;
    total[r] = all > 0.0 ? 1.0 / all : 0.0;
  }
  STORE(o, o_at, o_line, count, sums, total[r])
#else
  float dot_of[ROWS], lse_of[ROWS];
  EACH(r, ROWS) {
    vec4 dot4 = vec4(0);
    for (uint m = 0; m < SLABS; ++m)
      dot4 += VECTOR(go, o_at, o_line, ROW(r), count, 8 * m + TX) * VECTOR(o, o_at, o_line, ROW(r), count, 8 * m + TX);
    PART(r) = sum_of(dot4);
  }
  barrier();
  EACH(r, ROWS) {
    const uint row = row0 + first + min(ROW(r), count - 1);
    dot_of[r] = sum_of_parts(ROW(r));
    lse_of[r] = lse.v[row];
    if (TX == 0 && ROW(r) < count) dots.v[row] = dot_of[r];
  }
  for (uint j0 = 0; j0 < end; j0 += TILE) {
    PRODUCTS(s, q, q_at, q_line, count, k, k0 + j0 * k_line, k_line, end - j0)
    EACH(r, ROWS) {
      const uint sees = SEES(first + ROW(r));
      EACH(w, WIDE) {
        P(r, w) = mix(vec4(0), exp(s[r][w] * scale - lse_of[r]), lessThan(j0 + COLUMNS(w), uvec4(sees)));
      }
    }
    PRODUCTS(s, go, o_at, o_line, count, v, v0 + j0 * v_line, v_line, end - j0)
    EACH(r, ROWS) EACH(w, WIDE) P(r, w) *= (s[r][w] - dot_of[r]) * scale;
    ADD_PRODUCTS(sums, k, k0 + j0 * k_line, k_line, end - j0)
  }
  STORE(dq, q_at, q_line, count, sums, 1.0)
#endif
#else
  const uint first = gl_WorkGroupID.x * TILE, count = min(tk - first, TILE);
  // The first query that sees any key of the tile, and key j.
  const uint begin = first >= keys ? tq : causal != 0 && first + tq > tk ? first + tq - tk : 0;
#define SEEN_FROM(j) ((j) >= keys ? tq : causal != 0 && (j) + tq > tk ? (j) + tq - tk : 0)
  const uint k_at = k0 + first * k_line, v_at = v0 + first * v_line;
  const bool with_dk = !APART || gl_WorkGroupID.z == 0, with_dv = !APART || gl_WorkGroupID.z == 1;
  vec4 sums[ROWS][SLABS], sums_v[ROWS][SLABS];
  CLEAR(sums)
  if (!APART) CLEAR(sums_v)
  uint seen_from[ROWS];
  EACH(r, ROWS) seen_from[r] = SEEN_FROM(first + ROW(r));
  for (uint h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const uint q0 = b * tq * q_line + q_offset / 4 + h * QUADS;
    const uint o0 = b * tq * o_line + h * QUADS, row0 = (b * heads + h) * tq;
    for (uint i0 = begin; i0 < tq; i0 += TILE) {
      barrier();
      if (T < TILE) {
        lse_[T / 4][T % 4] = i0 + T < tq ? lse.v[row0 + i0 + T] : 0.0;
        dots_[T / 4][T % 4] = i0 + T < tq ? dots.v[row0 + i0 + T] : 0.0;
      }
      PRODUCTS(s, k, k_at, k_line, count, q, q0 + i0 * q_line, q_line, tq - i0)
      EACH(w, WIDE) {
        const vec4 lse4 = lse_[8 * w + TX];
        EACH(r, ROWS) {
          // seen_from <= i < tq, since negative differences wrap around
          const bvec4 sees = lessThan(i0 + COLUMNS(w) - seen_from[r], uvec4(tq - seen_from[r]));
          P(r, w) = mix(vec4(0), exp(s[r][w] * scale - lse4), sees);
        }
      }
      if (with_dv) {
        if (APART) ADD_PRODUCTS(sums, go, o0 + i0 * o_line, o_line, tq - i0)
        else ADD_PRODUCTS(sums_v, go, o0 + i0 * o_line, o_line, tq - i0)
      }
      if (with_dk) {
        PRODUCTS(s, v, v_at, v_line, count, go, o0 + i0 * o_line, o_line, tq - i0)
        EACH(w, WIDE) {
          const vec4 dots4 = dots_[8 * w + TX];
          EACH(r, ROWS) P(r, w) *= (s[r][w] - dots4) * scale;
        }
        ADD_PRODUCTS(sums, q, q0 + i0 * q_line, q_line, tq - i0)
      }
    }
  }
  if (with_dk) STORE(dk, k_at, k_line, count, sums, 1.0)
  if (APART && with_dv) STORE(dv, v_at, v_line, count, sums, 1.0)
  if (!APART) STORE(dv, v_at, v_line, count, sums_v, 1.0)
#endif
}
