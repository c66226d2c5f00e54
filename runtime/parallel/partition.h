// Decides where a model is cut into stages.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace etr::parallel {

struct Partition {
  std::vector<size_t> begins;  // the node at which each stage begins; the first is 0
  std::string reasons;         // one line for each stage: its layers, work and memory
};

struct PartitionOptions {
  int stages = 2;
  // Layers at which the second and later stages begin; empty: chosen.
  std::vector<std::string> layers;
  // The number of batches (of the graph's rows) whose activations each stage keeps; empty: 1.
  std::vector<int> in_flight = {};
  uint64_t memory_bytes = 0;  // of a device; 0: unknown
  // Measured seconds of each of parts_of(), for each stage's device. Empty: estimated.
  std::vector<std::vector<double>> seconds = {};
};

// Returns the nodes at which a stage can begin, and 0: the places between layers that share no
// parameters.
std::vector<size_t> parts_of(const graph::Graph& graph, graph::ValueId loss);

// Cuts between layers. Minimizes the cost of the stage with the most to do, from the measured
// seconds, or from an estimate of its arithmetic and of the bytes that it moves and hands on. Keeps
// all stages within the device's memory if possible. Error(invalid_argument) names an unknown
// layer, Error(unsupported) a parameter that layers of two stages share.
Partition partition(const graph::Graph& graph, graph::ValueId loss,
                    const PartitionOptions& options);

}  // namespace etr::parallel
