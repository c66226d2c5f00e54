// A model of which several devices compute a slice each; see graph/split.h.
#pragma once

#include <vector>

#include "graph/split.h"
#include "nn/model.h"

namespace etr::nn {

struct SplitModel {
  ModelGraph net;
  graph::Slices slices;
  std::vector<graph::SplitLayer> layers;
  std::vector<graph::ValueId> values;  // as graph::SplitGraph's
};

// For the rank-th of `size` devices. What goes in and comes out is whole on all of them.
SplitModel split(const ModelGraph& whole, int rank, int size);

// What became of each layer, a line each.
std::string to_text(const std::vector<graph::SplitLayer>& layers);

}  // namespace etr::nn
