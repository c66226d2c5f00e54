// Layers: named builders that append parameters and ops to a graph.
//
// A new layer is a LayerSpec and one line in layer_list.inc; the C API, the job file, the bindings and the help pick it
// up from its schema.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace etr::nn {

// A table whose rows lie elsewhere: a plan has an input with those of a batch, and one with their numbers in it.
struct ServedTable {
  std::string name;           // of the parameter that it is where the table is whole
  graph::ValueId ids = -1;    // i32 [N, ...], a field of the batch
  graph::ValueId rows = -1;   // i32, for each id its row of `table`
  graph::ValueId table = -1;  // f32 [the most ids that a batch has, width]
  int64_t entries = 0, width = 0;
  float deviation = 0;  // of the first values
};

struct LayerCall {
  graph::Graph& graph;
  const Options& options;
  std::string name;  // "conv2d_3": prefixes the parameters' names
  std::vector<graph::ValueId> inputs;
  // Builds a list of layers (an option of type "list of layers") on `input`, named
  // NAME.SCOPE.their_name (SCOPE may be empty), and gives the last one's value.
  std::function<graph::ValueId(const char* option, graph::ValueId input, const std::string& scope)>
      build;
  std::vector<ServedTable>* served = nullptr;  // nullptr: tables are parameters like any other

  graph::ValueId input() const { return inputs[0]; }
  Shape shape() const { return graph.shape(inputs[0]); }  // of the first input
};

struct LayerSpec {
  const char* name;
  const char* doc;
  Schema options;
  graph::ValueId (*build)(const LayerCall&);
  size_t min_inputs = 1, max_inputs = 1;
};

// What every layer of a model takes beside its own options: "name" and "input".
Schema layer_common_schema();

std::span<const LayerSpec* const> layer_table();
const LayerSpec& find_layer(const std::string& name);  // Error(not_found) names the nearest

}  // namespace etr::nn
