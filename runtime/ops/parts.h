// Copies of a range along an axis, used by concat and slice.
#pragma once

#include "ops/op.h"

namespace etr::ops {

// The range [begin, begin + length) of `axis` of the larger tensor.
struct Part {
  size_t axis;
  int64_t begin, length;
};

// Emits small = the part of large.
void emit_take_part(Emitter& emit, const DeviceTensor& large, const Part& part,
                    const DeviceTensor& small);
// Emits the part of large = small. A `small` with one sample is repeated for every sample of
// `large`.
void emit_put_part(Emitter& emit, const DeviceTensor& small, const Part& part,
                   const DeviceTensor& large);

// Returns `axis` counted from the front. Throws Error(invalid_argument) if x has no such axis or it
// is the batch axis.
size_t axis_of(const char* op, int64_t axis, const Shape& x);

}  // namespace etr::ops
