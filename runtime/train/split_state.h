// The state of a model cut into stages: its parts, and the whole as one device has it.
#pragma once

#include <vector>

#include "checkpoint/safetensors.h"
#include "graph/graph.h"

namespace etr::train {

// The functions below assume that an optimizer's tensor either has a scalar for each of a store's
// parameters, in the store's order, or is the same on all stages.

// Returns the part of one device's tensors that belongs to a store for the graph's values in `has`.
// Tensors of other lengths are unchanged.
checkpoint::NamedTensors part_of_state(const checkpoint::NamedTensors& whole,
                                       const graph::Graph& graph, const std::vector<bool>& has);

// The reverse; `has` is given for each part.
checkpoint::NamedTensors joined_state(const std::vector<checkpoint::NamedTensors>& parts,
                                      const graph::Graph& graph,
                                      const std::vector<std::vector<bool>>& has);

// Error(invalid_argument) names the first parameter or state of the graph that `given` lacks or has
// in another shape.
void check_all(const checkpoint::NamedTensors& given, const graph::Graph& graph);

}  // namespace etr::train
