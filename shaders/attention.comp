#version 450
// Multi-head attention that never stores the scores (Dao et al. 2022; Milakov and Gimelshein 2018
// for the running softmax). For head h of a sample: s[i, j] = scale q_i . k_j, p = softmax over j,
// o_i = sum_j p[i, j] v_j. With `causal`, query i sees the keys j <= i + tk - tq; with lengths,
// sample b the keys j < lengths[b]. Every `group` neighbouring heads of the queries share a head of
// keys and values (Ainslie et al. 2023).
//   forward   o, and lse_i = log sum exp s[i, :]
//   grad_q    D_i = do_i . o_i,  ds = p (do_i . v_j - D_i),  dq_i = scale sum_j ds k_j
//   grad_kv   dv_j = sum_i p do_i,  dk_j = scale sum_i ds q_i   (over the heads of the group, too)
// A lane owns a query (grad_kv: a key) and walks the other side, of which all lanes need the same
// row. The driver would load each number of that row by a gather, so eight lanes load sixteen
// numbers, in pairs, and each is broadcast from there. Sums have a fixed order.
//
// Row t of sample b, head h of a tensor x begins at (b * tx + t) * x_stride + x_offset + h * HEAD:
// q, k and v may be parts of one tensor. o and do are [batch, tq, heads * HEAD], lse and D [batch,
// heads, tq].
// Bindings: forward 0 q, 1 k, 2 v, 3 lengths, 4 o, 5 lse
//           grad_q  0 q, 1 k, 2 v, 3 lengths, 4 o, 5 lse, 6 do, 7 D, 8 dq
//           grad_kv 0 q, 1 k, 2 v, 3 lengths, 4 lse, 5 do, 6 D, 7 dk, 8 dv   (dk, dv strided like k, v)
// Dispatch: x = queries (or keys) over lanes, y = batch * heads (grad_kv: those of the keys). For
// CPUs, with 8 lanes or more in a subgroup; GPUs have attention_tiled.comp. Rows begin at multiples
// of 8 bytes.
//! variant attention
//! variant attention_grad_q -DGRAD_Q
//! variant attention_grad_kv -DGRAD_KV
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_shader_subgroup_ballot : require
#define BY_ADDRESS
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint HEAD = 4;  // a multiple of 4
#define QUADS (HEAD / 4)

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

#include "pair.glsl"

#define LOAD4(from, at) vec4(pair(from, at), pair(from, (at) + 2))
#define STORE4(to, at, value)             \
  {                                       \
    const vec4 value_ = value;            \
    store_pair(to, at, value_.xy);        \
    store_pair(to, (at) + 2, value_.zw);  \
  }
#define FOR_QUADS(d) for (uint d = 0; d < QUADS; ++d)

// Walks a row that all lanes need: in chunks of four quads, of which part() loads a lane's pair.
// OF_CHUNK(c, STATEMENT) executes STATEMENT(d, q) for each quad d of chunk c; SHARED(of, q) is quad q
// of a chunk's part.
#define FOR_CHUNKS(c) for (uint c = 0; c < (QUADS + 3) / 4; ++c)
vec2 part(Floats of, uint row, uint c) {
  return pair(of, row + min(16 * c + 2 * (gl_SubgroupInvocationID % 8), HEAD - 2));
}
#define SHARED(of, q) vec4(subgroupBroadcast(of, 2 * q), subgroupBroadcast(of, 2 * q + 1))
#define OF_CHUNK(c, STATEMENT)          \
  {                                     \
    STATEMENT(4 * c, 0)                 \
    if (4 * c + 1 < QUADS) { STATEMENT(4 * c + 1, 1) } \
    if (4 * c + 2 < QUADS) { STATEMENT(4 * c + 2, 2) } \
    if (4 * c + 3 < QUADS) { STATEMENT(4 * c + 3, 3) } \
  }

#define NOTHING uintBitsToFloat(0xFF800000u)  // -infinity

void main() {
#ifdef GRAD_KV
  const uint kv_heads = heads / group, b = gl_WorkGroupID.y / kv_heads, kv_head = gl_WorkGroupID.y % kv_heads;
#else
  const uint b = gl_WorkGroupID.y / heads, h = gl_WorkGroupID.y % heads, kv_head = h / group;
#endif
  const uint keys = masked != 0 ? min(uint(max(lengths.v[b], 0)), tk) : tk;
  const uint lane = gl_GlobalInvocationID.x, first = gl_WorkGroupID.x * gl_WorkGroupSize.x;
  const uint width = heads * HEAD;
  const uint k0 = b * tk * k_stride + k_offset + kv_head * HEAD;
  const uint v0 = b * tk * v_stride + v_offset + kv_head * HEAD;

#ifndef GRAD_KV
  const uint q0 = b * tq * q_stride + q_offset + h * HEAD;
  const uint o0 = b * tq * width + h * HEAD, row0 = gl_WorkGroupID.y * tq;
  const uint i = min(lane, tq - 1);  // lanes beyond the end repeat the last query but store nothing
  const uint sees = causal != 0 ? min(keys, i + tk - tq + 1) : keys;  // this lane's keys
  // All lanes of the workgroup walk up to the last key that its last query sees.
  const uint last = min(first + gl_WorkGroupSize.x, tq) - 1;
  const uint end = causal != 0 ? min(keys, last + tk - tq + 1) : keys;
  vec4 qi[QUADS];
  FOR_QUADS(d) qi[d] = LOAD4(q, q0 + i * q_stride + 4 * d) * scale;
#ifndef GRAD_Q
  vec4 sum[QUADS];
  FOR_QUADS(d) sum[d] = vec4(0);
  float top = NOTHING, total = 0.0;
  for (uint j = 0; j < end; ++j) {
    vec4 s4 = vec4(0);
    FOR_CHUNKS(c) {
      const vec2 of_k = part(k, k0 + j * k_stride, c);
#define SCORE(d, q) s4 += qi[d] * SHARED(of_k, q);
      OF_CHUNK(c, SCORE)
    }
    const float s = j < sees ? s4.x + s4.y + s4.z + s4.w : NOTHING;
    const float above = max(top, s);
    // Both are -infinity until the first visible key: nothing to rescale.
    const float rescale = top == NOTHING ? 0.0 : exp(top - above);
    const float p = s == NOTHING ? 0.0 : exp(s - above);
    total = total * rescale + p;
    top = above;
    FOR_CHUNKS(c) {
      const vec2 of_v = part(v, v0 + j * v_stride, c);
#define ADD(d, q) sum[d] = sum[d] * rescale + p * SHARED(of_v, q);
      OF_CHUNK(c, ADD)
    }
  }
  if (lane >= tq) return;
  const float inv = total > 0.0 ? 1.0 / total : 0.0;
  FOR_QUADS(d) STORE4(o, o0 + i * width + 4 * d, sum[d] * inv)
  lse.v[row0 + i] = total > 0.0 ? top + log(total) : 0.0;
#else
  vec4 gi[QUADS], sum[QUADS];
  vec4 dot4 = vec4(0);
  FOR_QUADS(d) {
    gi[d] = LOAD4(go, o0 + i * width + 4 * d);
    dot4 += gi[d] * LOAD4(o, o0 + i * width + 4 * d);
    sum[d] = vec4(0);
  }
  const float dot_i = dot4.x + dot4.y + dot4.z + dot4.w, lse_i = lse.v[row0 + i];
  for (uint j = 0; j < end; ++j) {
    vec4 s4 = vec4(0), p4 = vec4(0);
    FOR_CHUNKS(c) {
      const vec2 of_k = part(k, k0 + j * k_stride, c), of_v = part(v, v0 + j * v_stride, c);
#define SCORE(d, q)               \
  s4 += qi[d] * SHARED(of_k, q); \
  p4 += gi[d] * SHARED(of_v, q);
      OF_CHUNK(c, SCORE)
    }
    const float p = j < sees ? exp(s4.x + s4.y + s4.z + s4.w - lse_i) : 0.0;
    const float ds = p * (p4.x + p4.y + p4.z + p4.w - dot_i) * scale;
    FOR_CHUNKS(c) {
      const vec2 of_k = part(k, k0 + j * k_stride, c);
#define ADD(d, q) sum[d] += ds * SHARED(of_k, q);
      OF_CHUNK(c, ADD)
    }
  }
  if (lane >= tq) return;
  FOR_QUADS(d) STORE4(dq, q0 + i * q_stride + 4 * d, sum[d])
  dots.v[row0 + i] = dot_i;
#endif
#else
  const uint j = min(lane, tk - 1);
  // The first query that sees any key of the workgroup, and the first that sees this lane's key.
  const uint begin = causal != 0 && first + tq > tk ? first + tq - tk : 0;
  const uint mine = j >= keys ? tq : causal != 0 && j + tq > tk ? j + tq - tk : 0;
  vec4 kj[QUADS], sum[QUADS];
  FOR_QUADS(d) kj[d] = LOAD4(k, k0 + j * k_stride + 4 * d) * scale;
  vec4 vj[QUADS], sum_v[QUADS];
  FOR_QUADS(d) {
    vj[d] = LOAD4(v, v0 + j * v_stride + 4 * d);
    sum[d] = vec4(0);
    sum_v[d] = vec4(0);
  }
  for (uint h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const uint q0 = b * tq * q_stride + q_offset + h * HEAD;
    const uint o0 = b * tq * width + h * HEAD, row0 = (b * heads + h) * tq;
    for (uint i = begin; i < tq; ++i) {
      vec4 s4 = vec4(0), p4 = vec4(0);
      FOR_CHUNKS(c) {
        const vec2 of_q = part(q, q0 + i * q_stride, c), of_go = part(go, o0 + i * width, c);
#define SCORE(d, q)               \
  s4 += kj[d] * SHARED(of_q, q); \
  p4 += vj[d] * SHARED(of_go, q);
        OF_CHUNK(c, SCORE)
      }
      const float p = i >= mine ? exp(s4.x + s4.y + s4.z + s4.w - lse.v[row0 + i]) : 0.0;
      const float ds = p * (p4.x + p4.y + p4.z + p4.w - dots.v[row0 + i]) * scale;
      FOR_CHUNKS(c) {
        const vec2 of_q = part(q, q0 + i * q_stride, c), of_go = part(go, o0 + i * width, c);
#define ADD(d, q)                   \
  sum[d] += ds * SHARED(of_q, q);  \
  sum_v[d] += p * SHARED(of_go, q);
        OF_CHUNK(c, ADD)
      }
    }
  }
  if (lane >= tk) return;
  FOR_QUADS(d) {
    STORE4(dk, k0 + j * k_stride + 4 * d, sum[d])
    STORE4(dv, v0 + j * v_stride + 4 * d, sum_v[d])
  }
#endif
}
