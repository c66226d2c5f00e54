// Splits a graph so that several devices compute a slice each (tensor parallelism, Shoeybi et al.
// 2019).
//
// The graph determines what is split. Products whose results meet element by element, or in
// attention, and pass through one more product are split by columns, and that last product by rows.
// Tables of embeddings are split by their entries. Everything else is whole on every device.
// Between the two ends of a block (ops/slices.cpp) devices exchange nothing. Slices are of equal
// size, so all devices have the same commands.
#pragma once

#include <vector>

#include "graph/slice.h"

namespace etr::graph {

// The outcome for a layer whose parameters could be split.
struct SplitLayer {
  std::string label;
  std::string how;           // "columns", "rows", "heads", "entries"; "whole"
  std::string why;           // reason if it is whole
  uint64_t saved_bytes = 0;  // size of its parameters that this device does not hold
};

struct SplitGraph {
  Graph graph;
  std::vector<ValueId> values;  // counterparts of the whole graph's values; may be slices
  Slices slices;                // of split parameters; the others are whole
  std::vector<SplitLayer> layers;
};

// Returns the graph for device `rank` of `size`.
SplitGraph split(const Graph& whole, int rank, int size);

}  // namespace etr::graph
