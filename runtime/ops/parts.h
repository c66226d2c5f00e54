// Copies of ranges along an axis: what concat and slice are made of.
#pragma once

#include "ops/op.h"

namespace etr::ops {

// The range [begin, begin + length) of `axis` of the larger tensor.
struct Part {
  size_t axis;
  int64_t begin, length;
};

// Emits small = that part of large, or that part of large = small.
void emit_take_part(Emitter& emit, const DeviceTensor& large, const Part& part,
                    const DeviceTensor& small);
// A `small` with one sample is repeated for every sample of `large`.
void emit_put_part(Emitter& emit, const DeviceTensor& small, const Part& part,
                   const DeviceTensor& large);

// `axis` counted from the front; throws Error(invalid_argument) where x has no such axis or it is
// the batch's.
size_t axis_of(const char* op, int64_t axis, const Shape& x);

}  // namespace etr::ops
