// A model planned for batches of one shape, with weights shared by the plans for other shapes. The
// parts for training and for evaluation are made when first needed.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "graph/runner.h"
#include "nn/model.h"
#include "train/feeds.h"
#include "train/weights.h"

namespace etr::train {

// Builds the model for batches of this shape. Error(invalid_argument) names the field if the
// parameters do not fit.
nn::ModelGraph graph_for(const nn::Model& model, int64_t rows, const nn::Fields& fields,
                         const Weights& weights);

// Returns the values that a step is fed: the inputs, and the target unless it is one of them.
std::vector<graph::ValueId> fed_values(const nn::ModelGraph& net);

// Returns the options of a training plan, except what a learner adds: outputs, and exchanges of
// ranks.
graph::PlanOptions training_options(const nn::ModelGraph& net);

// A runner, and the feeds that fill its inputs.
struct FedRunner {
  FedRunner(const gpu::DevicePtr& device, const ServedTables* of)
      : memory(device, gpu::MemoryUse::device), served(of) {}

  // Fills the inputs of the next step from the batch, and returns the runner.
  graph::Runner& filled(const pipeline::Item& batch) {
    feeds->fill(*runner, served ? served->with_rows(batch) : batch);
    return *runner;
  }
  // The same for the training step with this number.
  graph::Runner& filled_for(const pipeline::Item& batch, uint32_t step) {
    feeds->fill(*runner, served ? served->with_rows_of_step(batch, step) : batch);
    return *runner;
  }

  gpu::Arena memory;           // of its commands, besides the plan's
  const ServedTables* served;  // nullptr: all tables are on the device
  std::unique_ptr<Feeds> feeds;
  std::unique_ptr<graph::Runner> runner;
};

class Planned : public std::enable_shared_from_this<Planned> {
 public:
  // Error(invalid_argument) names the field if the parameters do not fit samples of this shape.
  Planned(gpu::Kernels& kernels, const nn::Model& model, Weights& weights, int64_t rows,
          const nn::Fields& fields);
  ~Planned();

  const int64_t rows;
  const nn::Fields fields;

  const nn::ModelGraph& net() const { return net_; }
  const std::vector<graph::ValueId>& fed() const { return fed_; }

  // Throw if the batch lacks what a step, or a prediction, is fed; see check_fields().
  void check(const pipeline::Item& batch) const;
  void check_inputs(const pipeline::Item& batch) const;

  struct Training {
    std::unique_ptr<ops::RowPeers> row_peers;  // for the plan; nullptr if it needs none
    graph::Plan plan;
    gpu::CommandList commands;  // of a step: those of the plan, and the update
    FedRunner fed;
  };
  // Later batches must have their fields in the same places (train/batch_fields.h) as `first`. For
  // `view_samples` see Learner::expect_views().
  void make_training(const pipeline::Item& first, uint64_t view_samples);
  Training* training() { return training_.get(); }

  // Return runners for batches of fed() and of the inputs, with the current weights. They are made
  // anew if the batch has its fields in other places than the one before. The scorer's results are
  // the loss, the accuracy if the model classifies, and graph::Plan::row_weights().
  FedRunner& scorer(const pipeline::Item& batch);
  FedRunner& predictor(const pipeline::Item& batch);
  bool scores(const pipeline::Item& batch) const;  // whether scorer() has a runner for it
  const gpu::Buffer& predicted() const;            // the latest output of the predictor

  uint64_t reserved_bytes() const;

 private:
  struct Evaluation;

  const nn::ModelGraph& planned_net() const { return micro_ ? *micro_ : net_; }
  std::vector<graph::ValueId> fed_here() const;
  std::vector<graph::ValueId> with_tables(std::vector<graph::ValueId> values) const;

  std::vector<graph::ValueId> outputs() const;
  gpu::CommandList step_commands(const graph::Plan& plan, gpu::Arena& memory);
  Evaluation& evaluation();
  FedRunner& fed_with(std::unique_ptr<FedRunner>& fed, const std::vector<graph::ValueId>& values,
                      const std::vector<graph::ValueId>& read,
                      const std::vector<gpu::Buffer>& also_read, int slots,
                      const pipeline::Item& batch);

  gpu::Kernels& kernels_;
  const nn::Model& model_;
  Weights& weights_;
  nn::ModelGraph net_;
  std::optional<nn::ModelGraph> micro_;  // of a micro-batch, if the model is cut into stages
  graph::ParameterStore store_;          // with the constants of this shape
  std::vector<graph::ValueId> fed_;
  std::unique_ptr<ops::SlicePeers> slice_peers_;  // of the plans; nullptr if the model is whole
  std::unique_ptr<Training> training_;
  std::unique_ptr<Evaluation> evaluation_;
};

}  // namespace etr::train
