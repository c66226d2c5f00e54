// Sums over axes, shared by ops whose gradients sum what was repeated.
#pragma once

#include "ops/op.h"

namespace etr::ops {

enum class Reduction { sum, maximum, minimum };

// Emits out = the reduction of x over `axes` (ascending, each below x's rank), times `scale` for a
// sum. `out` holds as many elements as remain, whatever its shape.
void emit_reduce(Emitter& emit, Reduction kind, const DeviceTensor& x, std::vector<size_t> axes,
                 const DeviceTensor& out, float scale = 1);

// Emits out = the sum of x over the axes along which `out` was broadcast to x's shape (NumPy's
// rules). With equal shapes this is a copy.
void emit_sum_to(Emitter& emit, const DeviceTensor& x, const DeviceTensor& out);

}  // namespace etr::ops
