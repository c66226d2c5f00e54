// Shared by most kernels: a grid-stride loop, the step's values, random numbers.
#include "finite.glsl"

#define FOR_EACH(i, count)                                      \
  for (uint i = gl_GlobalInvocationID.x; i < (count);           \
       i += gl_NumWorkGroups.x * gl_WorkGroupSize.x)

// The same for kernels of GPUs that do little but move memory: i is the first of four elements,
// FOURTH(i, j, count) the j-th, or the first where there is none: one that no other invocation
// writes. All four are read before any is written: only loads that do not wait for one another keep
// the memory busy.
#define FOR_EACH_FOUR(i, count)                                                              \
  for (uint i = gl_WorkGroupID.x * 4 * gl_WorkGroupSize.x + gl_LocalInvocationID.x; i < (count); \
       i += gl_NumWorkGroups.x * 4 * gl_WorkGroupSize.x)
#define OF_FOUR(j) [[unroll]] for (uint j = 0; j < 4; ++j)
#define HAS_FOURTH(i, j, count) ((i) + (j) * gl_WorkGroupSize.x < (count))
#define FOURTH(i, j, count) (HAS_FOURTH(i, j, count) ? (i) + (j) * gl_WorkGroupSize.x : (i))

// A float's bits without the sign: larger for larger numbers, largest for infinity and NaN. The
// maximum of these shows whether all of many numbers are finite. On a CPU device it costs a tenth
// of what a condition for each number costs.
#define MAGNITUDE_BITS(bits) ((bits) & 0x7FFFFFFFu)

// For tensors [rows, c]: neighbouring invocations own neighbouring channels and walk down a slice
// of rows, so that no index needs a division (a division costs a CPU device more than the
// arithmetic).
// Dispatch: x = ceil(c / lanes), y = slices.
#define CHANNEL gl_GlobalInvocationID.x
// (See FOR_GROUPS in row.glsl for why r stays below the end.)
#define FOR_ROWS(r, row_count, slice_count)                                                   \
  for (uint rows_per_ = ((row_count) + (slice_count) - 1) / (slice_count),                    \
            r##_ = gl_WorkGroupID.y * rows_per_, r = r##_,                                    \
            end_ = min(r##_ + rows_per_, (row_count));                                        \
       r##_ < end_; ++r##_, r = min(r##_, end_ - 1))

// What changes from step to step (ops/op.h mirrors it).
struct StepValues {
  uint step;           // optimizer steps done before this one
  uint valid_rows;     // rows of the batch that are samples; the others are padding
  uint seed_lo, seed_hi;
  float learning_rate;
  uint update;         // number of the update that this step ends, from 1; 0: gradients are only accumulated
  uint flags;          // FIRST_OF_UPDATE, FRESH_BATCH
  uint not_finite;     // set by the device if a gradient is not finite
  uint first_row, rows;  // place of the batch in one that ranks share
  float kept_a, kept_b, rest_a, rest_b, log_a, log_b;  // running means: kept share, 1 - share, log
  float weight_decay, label_smoothing;
};

#define HOPELESS 2  // not finite at the smallest loss scale
#define FIRST_OF_UPDATE 1
#define FRESH_BATCH 2
