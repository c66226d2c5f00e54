// A graph of which several devices compute a slice each (Shoeybi et al. 2019).
//
// What is split follows from the graph: products whose results meet element by element, or in attention, and go through one more
// product, by columns first and then by rows; and tables of embeddings by their entries. All else is whole on every device.
// Between the two ends of a block (ops/slices.cpp) devices exchange nothing. Slices are of equal size, so all devices have the
// same commands.
#pragma once

#include <vector>

#include "graph/slice.h"

namespace etr::graph {

// What became of a layer with parameters that could be split.
struct SplitLayer {
  std::string label;
  std::string how;           // "columns", "rows", "heads", "entries"; "whole"
  std::string why;           // where it is whole
  uint64_t saved_bytes = 0;  // of its parameters, that this device does not have
};

struct SplitGraph {
  Graph graph;
  std::vector<ValueId> values;  // what stands for the whole graph's values; slices stand for theirs
  Slices slices;                // of parameters; the others are whole
  std::vector<SplitLayer> layers;
};

// For the rank-th of `size` devices.
SplitGraph split(const Graph& whole, int rank, int size);

}  // namespace etr::graph
