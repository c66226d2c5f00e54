// A graph planned for a device: where every tensor lies, and the dispatches of the forward and
// backward pass.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/parameters.h"

namespace etr::graph {

struct PlanOptions {
  bool training = false;
  ValueId loss = -1;  // differentiated with respect to every parameter when training
};

// The buffers live as long as the plan. Reverse-mode differentiation walks the nodes backwards; a
// value that several nodes use sums its gradients in a fixed order.
class Plan {
 public:
  Plan(gpu::Kernels& kernels, const Graph& graph, const ParameterStore& parameters,
       const PlanOptions& options);

  const ops::DeviceTensor& tensor(ValueId id) const { return tensors_[static_cast<size_t>(id)]; }
  const ops::DeviceTensor& gradient(ValueId id) const {  // empty where none is computed
    return gradients_[static_cast<size_t>(id)];
  }
  const gpu::Buffer& step_values() const { return step_; }
  const gpu::CommandList& commands() const { return commands_; }
  uint64_t reserved_bytes() const { return arena_.reserved_bytes(); }

 private:
  void allocate(const ParameterStore& parameters);
  void forward(ops::Emitter& emit);
  void backward(ops::Emitter& emit, const ParameterStore& parameters, ValueId loss);
  void find_needed();
  ops::OpCall call_of(size_t node) const;

  const Graph& graph_;
  bool training_;
  gpu::Arena arena_;
  gpu::Buffer step_;
  gpu::CommandList commands_;
  std::vector<ops::DeviceTensor> tensors_, gradients_;
  std::vector<std::vector<ops::DeviceTensor>> saved_;  // by node
  std::vector<bool> needs_gradient_;                   // by value: leads to a parameter
};

}  // namespace etr::graph
