// Shared by the simple kernels: a grid-stride loop, the step's dynamic values, random numbers.

#define FOR_EACH(i, count)                                      \
  for (uint i = gl_GlobalInvocationID.x; i < (count);           \
       i += gl_NumWorkGroups.x * gl_WorkGroupSize.x)

// What changes from step to step (ops/op.h mirrors it).
struct StepValues {
  uint step;           // optimizer steps done before this one
  uint valid_rows;     // rows of the batch that are samples; the rest is padding
  uint seed_lo, seed_hi;
  float learning_rate;
  uint reserved0, reserved1, reserved2;
};
