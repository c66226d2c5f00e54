// Fuses commands: chains of element-wise operations, and operations that a product can apply to its
// result before writing it.
#pragma once

#include "graph/memory_plan.h"
#include "ops/op.h"

namespace etr::graph {

// Rewrites a plan's complete command list before its memory is placed. An element-wise dispatch is
// merged into its readers if that moves fewer tensors and nothing else needs its result. A sum,
// with or without ReLU, or the gradient after a ReLU becomes part of the product that it follows.
// The gradient after a ReLU and a max_pool is masked before it is spread over the windows.
// Results stay the same except for how a driver rounds within a kernel. Without a GLSL compiler
// chains are not fused.
void fuse(gpu::CommandList& commands, MemoryPlan& memory, gpu::Kernels& kernels);

}  // namespace etr::graph
