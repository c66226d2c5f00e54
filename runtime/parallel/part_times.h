// Measures how long a device takes for each part of a model, for partition().
#pragma once

#include <cstddef>
#include <vector>

#include "graph/plan.h"

namespace etr::parallel {

// Returns the seconds of the forward and backward pass of each part. Part i begins at node
// begins[i] and ends where the next one begins. Each part is planned with `options` and run on its
// own: once to compile its kernels, then a few times, of which the fastest counts. Inputs and
// weights are chosen so that no arithmetic is slow, since time should depend on shapes only. Memory
// is used for one part at a time.
std::vector<double> seconds_of_parts(gpu::Kernels& kernels, const graph::Graph& graph,
                                     const std::vector<size_t>& begins, graph::PlanOptions options);

}  // namespace etr::parallel
