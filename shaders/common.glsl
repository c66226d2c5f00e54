// Shared by the simple kernels: a grid-stride loop, the step's dynamic values, random numbers.

#define FOR_EACH(i, count)                                      \
  for (uint i = gl_GlobalInvocationID.x; i < (count);           \
       i += gl_NumWorkGroups.x * gl_WorkGroupSize.x)

// For tensors [rows, c]: neighbouring invocations own neighbouring channels and walk down a slice of
// rows, so that no index needs a division (a division costs a CPU device more than the arithmetic).
// Dispatch: x = ceil(c / lanes), y = slices.
#define CHANNEL gl_GlobalInvocationID.x
#define FOR_ROWS(r, row_count, slice_count)                                                   \
  for (uint rows_per_ = ((row_count) + (slice_count) - 1) / (slice_count),                    \
            r = gl_WorkGroupID.y * rows_per_, end_ = min(r + rows_per_, (row_count));         \
       r < end_; ++r)

// What changes from step to step (ops/op.h mirrors it).
struct StepValues {
  uint step;           // optimizer steps done before this one
  uint valid_rows;     // rows of the batch that are samples; the rest is padding
  uint seed_lo, seed_hi;
  float learning_rate;
  uint update;         // number of the update that this step ends, from 1; 0: gradients are only accumulated
  uint flags;          // FIRST_OF_UPDATE, FRESH_BATCH
  uint not_finite;     // set by the device where a gradient had no finite value
};
// Of a float's bits: neither infinite nor NaN. Compilers may take the float itself for finite.
#define IS_FINITE(bits) (((bits) & 0x7F800000u) != 0x7F800000u)

#define HOPELESS 2  // not_finite at the least loss scale
#define FIRST_OF_UPDATE 1
#define FRESH_BATCH 2
