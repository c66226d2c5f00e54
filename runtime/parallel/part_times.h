// How long a device takes for each part of a model, for partition().
#pragma once

#include <cstddef>
#include <vector>

#include "graph/plan.h"

namespace etr::parallel {

// Seconds that the forward and the backward pass of a part take by themselves, of each part in turn: they begin at these nodes of the
// graph, and end where the next one does. Each is planned as `options` say, run once for its kernels' sake, and then taken the least of a few runs.
// Inputs and weights are such that no arithmetic is slow: it depends on shapes alone. One part at a time takes memory.
std::vector<double> seconds_of_parts(gpu::Kernels& kernels, const graph::Graph& graph,
                                     const std::vector<size_t>& begins, graph::PlanOptions options);

}  // namespace etr::parallel
