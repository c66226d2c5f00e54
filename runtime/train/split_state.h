// The state of a model that is cut into stages: parts of it, and the whole as one device has it.
#pragma once

#include <vector>

#include "checkpoint/safetensors.h"
#include "graph/graph.h"

namespace etr::train {

// An optimizer's tensors have a scalar for each of a store's parameters, in the store's order, or are the same on all stages.

// Of one device's tensors, those of a store for the graph's values that are in `has`. A tensor of another length stays as it is.
checkpoint::NamedTensors part_of_state(const checkpoint::NamedTensors& whole,
                                       const graph::Graph& graph, const std::vector<bool>& has);

// And back: `has` of each part.
checkpoint::NamedTensors joined_state(const std::vector<checkpoint::NamedTensors>& parts,
                                      const graph::Graph& graph,
                                      const std::vector<std::vector<bool>>& has);

// Throws Error(invalid_argument) that names the first parameter or state of the graph which `given` lacks or has in another shape.
void check_all(const checkpoint::NamedTensors& given, const graph::Graph& graph);

}  // namespace etr::train
