// A model split so that several devices compute a slice each; see graph/split.h.
#pragma once

#include <vector>

#include "graph/split.h"
#include "nn/model.h"

namespace etr::nn {

struct SplitModel {
  ModelGraph net;
  graph::Slices slices;
  std::vector<graph::SplitLayer> layers;
  std::vector<graph::ValueId> values;  // as SplitGraph::values
};

// Returns the model for device `rank` of `size`. Its inputs and outputs are whole on all devices.
SplitModel split(const ModelGraph& whole, int rank, int size);

// Returns the outcome for each layer, one line each.
std::string to_text(const std::vector<graph::SplitLayer>& layers);

}  // namespace etr::nn
