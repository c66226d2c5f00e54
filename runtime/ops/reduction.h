// Sums over broadcast axes, for the gradients of ops that broadcast.
#pragma once

#include "ops/op.h"

namespace etr::ops {

// Emits out = the sum of x over the axes along which `out` was broadcast to x's shape (NumPy's
// rules). With equal shapes this is a copy.
void emit_sum_to(Emitter& emit, const DeviceTensor& x, const DeviceTensor& out);

}  // namespace etr::ops
