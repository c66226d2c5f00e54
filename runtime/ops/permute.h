// Permutes axes, for ops that change a tensor's layout.
#pragma once

#include "ops/op.h"

namespace etr::ops {

// Emits y, whose axis i is x's axis axes[i]; at most five axes.
void emit_permute(Emitter& emit, const DeviceTensor& x, const std::vector<size_t>& axes,
                  const DeviceTensor& y);

}  // namespace etr::ops
