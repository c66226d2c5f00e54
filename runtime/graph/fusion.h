// Commands that become one: chains of element-wise operations, and what a product can do with its result before it writes it.
#pragma once

#include "graph/memory_plan.h"
#include "ops/op.h"

namespace etr::graph {

// Rewrites a plan's finished list before its memory is placed. Element-wise dispatches are computed within those that read
// them where that moves fewer tensors and nobody else wants them; a sum, its ReLU, or the gradient after a ReLU becomes a
// part of the product it follows. Results are the same but for how a driver rounds within a kernel. Without a GLSL
// compiler only products take part.
void fuse(gpu::CommandList& commands, const MemoryPlan& memory, gpu::Kernels& kernels);

}  // namespace etr::graph
