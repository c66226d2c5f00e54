// Layers: named builders that append parameters and ops to a graph.
//
// A new layer is a LayerSpec and one line in layer_list.inc. The C API, the job file, the bindings
// and the help pick it up from its schema.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace etr::nn {

// A table that is stored elsewhere. A plan has one input with the rows that a batch uses, and one
// with their indices in it.
struct ServedTable {
  std::string name;           // name of the parameter that would hold the whole table
  graph::ValueId ids = -1;    // i32 [N, ...], a field of the batch
  graph::ValueId rows = -1;   // i32, the row of `table` for each id
  graph::ValueId table = -1;  // f32 [most ids in a batch, width]
  int64_t entries = 0, width = 0;
  float deviation = 0;  // standard deviation of the initial values
};

class Lora;

struct LayerCall {
  graph::Graph& graph;
  const Options& options;
  std::string name;  // "conv2d_3": prefixes the parameters' names
  std::vector<graph::ValueId> inputs;
  // Builds a list of layers (an option of type "list of layers") on `input`, named
  // NAME.SCOPE.their_name (SCOPE may be empty), and returns the last one's value.
  std::function<graph::ValueId(const char* option, graph::ValueId input, const std::string& scope)>
      build;
  std::vector<ServedTable>* served = nullptr;  // nullptr: tables are parameters like any other
  const Lora* lora = nullptr;                  // nullptr: no adapters

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

// Returns the options that every layer takes besides its own: "name" and "input".
Schema layer_common_schema();

std::span<const LayerSpec* const> layer_table();
// Throws Error(not_found), naming the nearest.
const LayerSpec& find_layer(const std::string& name);

}  // namespace etr::nn
