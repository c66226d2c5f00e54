// A graph planned for a device: the place of every tensor, and the dispatches of the forward and
// backward pass.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/memory_plan.h"
#include "graph/parameters.h"
#include "graph/part.h"

namespace etr::graph {

// Consumes a plan's gradients, by parameter, if the store keeps none. Called when the commands are
// complete, before their memory is placed. It appends commands that read each gradient; until these
// a gradient keeps its memory. `row_weight`: see Plan::row_weights().
using TakeGradients = std::function<void(gpu::CommandList& commands,
                                         const std::map<std::string, gpu::Buffer>& gradients,
                                         const gpu::Buffer& row_weight)>;

// Returns the number of elements of a mean over rows (op mean_rows), valid or not. Each weighs 1 if
// the mean has no weights.
int64_t elements_of_mean(const Graph& graph, ValueId mean);

struct PlanOptions {
  bool training = false;
  ValueId loss = -1;  // differentiated with respect to every parameter when training
  // Values that are read after the commands; the memory of all others is reused.
  std::vector<ValueId> outputs;
  // Weights to use instead of the store's own (for instance their running mean), with the same
  // layout.
  gpu::Buffer weights;
  // Keep only the values that cross from one part of the graph to the next, and compute the rest
  // again in the backward pass (Chen et al. 2016). Costs a third more work and reduces memory
  // towards the square root of the depth.
  bool recompute = false;
  ops::Precision precision = ops::Precision::fp32;  // of products
  // Evaluation only: folds batch normalisation into the weights before it. preparation() computes
  // the folded weights from the current parameters.
  bool fold_norms = false;
  // Fuses chains of element-wise operations and operations that products can do (graph/fusion.h).
  bool fuse = true;
  // f32 [1], the factor of the gradients in the backward pass (optim::LossScale); empty: 1.
  gpu::Buffer loss_scale;
  // Devices with which this one computes the step; they must outlive the commands.
  ops::Peers peers = {};
  // A mean over rows (op mean_rows) whose weight is read after the commands; -1: none.
  ValueId weighed = -1;
  // Inputs whose gradients are also read after the commands: those that hold the rows of a table
  // which a step uses.
  std::vector<ValueId> input_gradients = {};
  TakeGradients take_gradients = {};  // if the store keeps none; needs `weighed`
  // An input with the gradient of `loss`, which may then have any shape, from outside. The passes
  // become two command lists: commands() computes `loss`, and backward_commands() begins with that
  // input. -1: the gradient is 1, and commands() has both passes.
  ValueId loss_gradient = -1;
  // Computes only this part of the graph, one micro-batch after another. The graph's rows are those
  // of one micro-batch, and `outputs` must be means over rows (op mean_rows).
  std::optional<Part> part;
};

// Owns the memory of its tensors. Reverse-mode differentiation walks the nodes backwards. The
// gradients of a value that several nodes use are summed in a fixed order.
class Plan {
 public:
  Plan(gpu::Kernels& kernels, const Graph& graph, const ParameterStore& parameters,
       const PlanOptions& options);

  // Returns an input or output. Throws Error(internal) for other values, whose memory is reused.
  const ops::DeviceTensor& tensor(ValueId id) const;
  const ops::DeviceTensor& input_gradient(ValueId id) const;  // one of PlanOptions::input_gradients
  // Return what the rows of PlanOptions::weighed count, all together: f32 [1], for each micro-batch
  // of a part. None if this part does not compute it.
  const std::vector<gpu::Buffer>& row_weights() const { return row_weights_; }
  const gpu::Buffer& step_values() const { return step_; }
  const gpu::CommandList& commands() const { return commands_; }
  // For PlanOptions::loss_gradient. Must run after commands(), once, with the same step values.
  const gpu::CommandList& backward_commands() const { return backward_commands_; }
  // Must run before the first commands(), and again when parameters have changed; may be empty.
  const gpu::CommandList& preparation() const { return preparation_; }
  uint64_t reserved_bytes() const { return arena_.reserved_bytes(); }
  uint64_t asked_bytes() const { return memory_.asked_bytes(); }  // without sharing of memory

  // For a part, whose inputs have the rows of all micro-batches. After commands(), sums() holds for
  // each output the weight of its rows and the weighted sum; 0 if this part does not compute it.
  // The sums of all parts are added. Gradients are those of the loss's weighted sum.
  const gpu::Buffer& sums() const { return sums_; }  // f32 [outputs, 2]
  // Appends commands that compute the outputs and weight() from sums(). The gradients must then be
  // divided by weight().
  void emit_means(ops::Emitter& emit) const;
  const gpu::Buffer& weight() const { return weight_; }  // f32 [1]

 private:
  // The state of one batch or micro-batch.
  struct Flight {
    gpu::Buffer step;  // StepValues
    std::vector<ops::DeviceTensor> tensors, gradients;
    std::vector<std::vector<ops::DeviceTensor>> saved;  // by node
  };

  void allocate(const ParameterStore& parameters, const gpu::Buffer& weights);
  Flight make_flight();
  ops::DeviceTensor unplaced(const Shape& shape);
  void forward(ops::Emitter& emit, const Flight& flight);
  void find_folds(ops::Emitter& emit, const PlanOptions& options);
  void forward_folded(ops::Emitter& emit, const Flight& flight, size_t norm);
  void backward(ops::Emitter& emit, Flight& flight, const ParameterStore& parameters);
  void backward_of(ops::Emitter& emit, Flight& flight, size_t node,
                   const ParameterStore& parameters);
  std::map<std::string, gpu::Buffer> gradients_of(const Flight& flight) const;
  void begin_backward(ops::Emitter& emit, Flight& flight, const PlanOptions& options);
  bool any_needs_gradient(size_t begin, size_t end) const;  // of these nodes
  std::vector<size_t> cuts() const;
  void forward_again(ops::Emitter& emit, Flight& flight, size_t begin, size_t end);
  void place(gpu::Kernels& kernels, const PlanOptions& options);
  void split_passes();
  ops::OpCall call_of(const Flight& flight, size_t node) const;
  // The same, after commands that make quantised weights f32 again.
  ops::OpCall whole_call_of(ops::Emitter& emit, const Flight& flight, size_t node) const;

  // For a part (graph/micro_batches.cpp).
  void make_micro_batches(ops::Emitter& emit, const PlanOptions& options);
  void run_micro_batches(ops::Emitter& emit, const ParameterStore& parameters,
                         const PlanOptions& options);
  void load_inputs(ops::Emitter& emit, Flight& flight, int micro_batch) const;
  void sum_outputs(ops::Emitter& emit, const Flight& flight) const;
  void seed(ops::Emitter& emit, Flight& flight, const PlanOptions& options) const;
  const ops::DeviceTensor& total_of(const Flight& flight, ValueId mean) const;
  bool computes(ValueId value) const;
  float all_rows(ValueId mean) const;

  const Graph& graph_;
  bool training_, recompute_;
  const std::optional<Part> part_;
  const size_t begin_, end_;     // of the nodes
  const std::vector<bool> has_;  // by value: whether the part has it
  gpu::Arena arena_;
  MemoryPlan memory_;
  gpu::Buffer step_;
  gpu::CommandList commands_, backward_commands_, preparation_;
  std::vector<ops::DeviceTensor> tensors_;  // shared by all flights
  std::vector<Flight> flights_;
  std::vector<ValueId> means_;  // the outputs of a part
  gpu::Buffer sums_, weight_;
  std::vector<gpu::Buffer> row_weights_;
  // Products with a normalisation folded in: the product's node and its folded weights, by the
  // normalisation's node.
  struct Fold {
    size_t product;
    ops::DeviceTensor w, b;
  };
  std::map<size_t, Fold> folds_;
  std::vector<bool> folded_away_;     // nodes that are such products
  std::vector<bool> needs_gradient_;  // by value: leads to a parameter
  std::map<ValueId, ops::DeviceTensor> input_gradients_;
};

}  // namespace etr::graph
