// A part of a graph for a device that computes only that part, on one micro-batch after another.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "graph/graph.h"

namespace etr::graph {

// Returns the values that have a gradient: parameters, these inputs, and what depends on them.
std::vector<bool> trained(const Graph& graph, const std::vector<ValueId>& inputs = {});

// A value that nodes before a cut produce and nodes after it use.
struct Crossing {
  ValueId value;
  bool differentiable;  // its gradient crosses back
};

// Returns the values that cross the cut before the node `cut`, in the graph's order. Both sides of
// the cut call this with the same graph.
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
  int micro_batches = 1;             // each as many rows as the graph
  // The passes in the order of computation. In training, backward passes follow the order of
  // micro-batches, in which gradients are summed.
  std::vector<Pass> order;

  // Emit the transfer of tensors over the cuts, while commands are assembled. `receive` must fill
  // them before the pass's commands run: values that cross the cut at `begin`, or gradients of
  // those at `end`. `send` gets them after the pass's commands: values at `end`, gradients
  // at `begin`. Not called if there are none.
  using Carrier = std::function<void(
      const Pass& pass, const std::vector<ops::DeviceTensor>& tensors, ops::Emitter& emit)>;
  Carrier receive, send;
};

// Returns which of the graph's values the part's device has: those that its nodes read or produce,
// and those that cross the cuts at its ends.
std::vector<bool> values_of(const Graph& graph, const Part& part);

}  // namespace etr::graph
