// A part of a graph, for a device that computes no more than that, on micro-batches one after another.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "graph/graph.h"

namespace etr::graph {

// A value that nodes before a cut make and nodes behind it use.
struct Crossing {
  ValueId value;
  bool differentiable;  // its gradient comes back
};

// What crosses the cut before the node `cut`, in the order of values. Both sides of it call this with the same graph.
std::vector<Crossing> crossing(const Graph& graph, size_t cut, ValueId loss);

// The forward or the backward pass of one micro-batch.
struct Pass {
  enum class Direction { forward, backward };
  Direction direction;
  int micro_batch;
  bool operator==(const Pass&) const = default;
};

struct Part {
  size_t begin = 0, end = SIZE_MAX;  // of the graph's nodes
  int micro_batches = 1;             // of the graph's rows each
  // What is computed when. Backward passes, in training, come in the order of micro-batches: gradients are summed in it.
  std::vector<Pass> order;

  // What carries tensors over the cuts; told while commands are put together. `bring` is to fill them before the pass's commands: values
  // that cross the cut at `begin`, or gradients of those at `end`. `hand_on` has them behind the pass's commands: values at `end`,
  // gradients at `begin`. Not called for none.
  using Carrier = std::function<void(
      const Pass& pass, const std::vector<ops::DeviceTensor>& tensors, ops::Emitter& emit)>;
  Carrier bring, hand_on;
};

// Which of the graph's values a part's device has: those that its nodes read or make, and those that cross its cuts.
std::vector<bool> values_of(const Graph& graph, const Part& part);

}  // namespace etr::graph
