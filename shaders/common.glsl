// Shared by the simple kernels: a grid-stride loop, the step's dynamic values, random numbers.
#include "finite.glsl"

#define FOR_EACH(i, count)                                      \
  for (uint i = gl_GlobalInvocationID.x; i < (count);           \
       i += gl_NumWorkGroups.x * gl_WorkGroupSize.x)

// A float's bits without the sign: larger for larger numbers, largest for infinity and NaN. Whether all of many numbers are finite is
// a maximum of these, which costs a CPU device a tenth of a condition on each.
#define MAGNITUDE_BITS(bits) ((bits) & 0x7FFFFFFFu)

// For tensors [rows, c]: neighbouring invocations own neighbouring channels and walk down a slice of
// rows, so that no index needs a division (a division costs a CPU device more than the arithmetic).
// Dispatch: x = ceil(c / lanes), y = slices.
#define CHANNEL gl_GlobalInvocationID.x
// (Why r stays below the end: see FOR_GROUPS in row.glsl.)
#define FOR_ROWS(r, row_count, slice_count)                                                   \
  for (uint rows_per_ = ((row_count) + (slice_count) - 1) / (slice_count),                    \
            r##_ = gl_WorkGroupID.y * rows_per_, r = r##_,                                    \
            end_ = min(r##_ + rows_per_, (row_count));                                        \
       r##_ < end_; ++r##_, r = min(r##_, end_ - 1))

// What changes from step to step (ops/op.h mirrors it).
struct StepValues {
  uint step;           // optimizer steps done before this one
  uint valid_rows;     // rows of the batch that are samples; the rest is padding
  uint seed_lo, seed_hi;
  float learning_rate;
  uint update;         // number of the update that this step ends, from 1; 0: gradients are only accumulated
  uint flags;          // FIRST_OF_UPDATE, FRESH_BATCH
  uint not_finite;     // set by the device where a gradient had no finite value
  uint first_row, rows;  // of the batch, in one that several ranks share
  float kept_a, kept_b, rest_a, rest_b, log_a, log_b;  // of running means: shares that are kept, 1 - share, log(share)
  float weight_decay, label_smoothing;
};

#define HOPELESS 2  // not_finite at the least loss scale
#define FIRST_OF_UPDATE 1
#define FRESH_BATCH 2
