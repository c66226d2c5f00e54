// Where a model is cut into stages.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace etr::parallel {

struct Partition {
  std::vector<size_t> begins;  // the node at which each stage begins; the first is 0
  std::string reasons;  // a line for each stage: its layers, and what it has to do and to hold
};

struct PartitionOptions {
  int stages = 2;
  std::vector<std::string>
      layers;  // at which the second stage begins and those after it; empty: chosen
  int in_flight =
      1;  // batches of the graph's rows whose activations the first stage keeps; each has one fewer, down to 1
  uint64_t memory_bytes = 0;  // of a device; 0: not known
  // Measured: by stage, how long its device takes for each of parts_of(). Empty: estimated.
  std::vector<std::vector<double>> seconds = {};
};

// The nodes at which a stage can begin, and 0: between layers that share no parameters.
std::vector<size_t> parts_of(const graph::Graph& graph, graph::ValueId loss);

// Cuts between layers. Chosen so that the stage with the most to do, by the seconds that were measured or by an estimate of its arithmetic
// and of the bytes that it moves and hands on, has as little as can be, and none takes more memory than there is where that can be.
// Error(invalid_argument) names a layer that there is not; Error(unsupported) a parameter that layers of two stages share.
Partition partition(const graph::Graph& graph, graph::ValueId loss,
                    const PartitionOptions& options);

}  // namespace etr::parallel
