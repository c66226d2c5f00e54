// A workgroup for each row: its lanes share the row's elements and combine their sums and maxima.
// Include it after interface.glsl. A CPU device runs the workgroup as one subgroup. Others combine
// in shared memory, in a fixed order, so that sums are bitwise the same from run to run.
//   FOR_GROUPS(r, rows) FOR_LANES(k, length) sum += x.v[r * length + k];  total = row_sum(sum);
layout(local_size_x_id = 0) in;

#define LANE gl_LocalInvocationID.x
// Rows after the last are never read, not even by inactive lanes. Lavapipe (Mesa 26) runs a loop's
// body once more with all lanes off and still loads from addresses that all lanes share. An index
// read there might point anywhere.
#define FOR_GROUPS(r, count)                                           \
  for (uint r##_ = gl_WorkGroupID.x, r = r##_; r##_ < (count);         \
       r##_ += gl_NumWorkGroups.x, r = min(r##_, (count) - 1))
#define FOR_LANES(k, count) for (uint k = LANE; k < (count); k += gl_WorkGroupSize.x)

#ifdef BY_ADDRESS
#extension GL_KHR_shader_subgroup_arithmetic : require
float row_sum(float v) { return subgroupAdd(v); }
float row_max(float v) { return subgroupMax(v); }
#else
shared float lanes_[gl_WorkGroupSize.x];
#define JOIN_LANES(a, b, joined)                                 \
  barrier();                                                     \
  lanes_[LANE] = v;                                              \
  barrier();                                                     \
  for (uint half_ = gl_WorkGroupSize.x / 2; half_ > 0; half_ /= 2) { \
    if (LANE < half_) {                                          \
      const float a = lanes_[LANE], b = lanes_[LANE + half_];    \
      lanes_[LANE] = joined;                                     \
    }                                                            \
    barrier();                                                   \
  }                                                              \
  return lanes_[0];

float row_sum(float v) { JOIN_LANES(a, b, a + b) }
float row_max(float v) { JOIN_LANES(a, b, max(a, b)) }
#endif
