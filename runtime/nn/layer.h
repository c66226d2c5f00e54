// Layers: named builders that append parameters and ops to a graph.
//
// A new layer is a LayerSpec and one line in layer_list.inc; the C API, the job file and the help
// pick it up from its schema.
#pragma once

#include <span>
#include <string>

#include "graph/graph.h"

namespace etr::nn {

struct LayerCall {
  graph::Graph& graph;
  const Options& options;
  std::string name;  // "conv2d_3": prefixes the parameters' names
  graph::ValueId input;
};

struct LayerSpec {
  const char* name;
  const char* doc;
  Schema options;
  graph::ValueId (*build)(const LayerCall&);
};

std::span<const LayerSpec* const> layer_table();
const LayerSpec& find_layer(const std::string& name);  // Error(not_found) names the nearest

}  // namespace etr::nn
