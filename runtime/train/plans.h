// Plans of one model for batches of several shapes and sizes, over parameters that they share.
//
// A plan serves batches of its samples' shape with as many rows as it was made for, or fewer: rows beyond a smaller batch
// repeat it, so that batch statistics stay sane, and losses leave them out.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/runner.h"
#include "nn/model.h"
#include "optim/update.h"
#include "parallel/data_parallel.h"
#include "pipeline/item.h"
#include "train/reservoir.h"

namespace etr::train {

// What a step is fed: the inputs, and the target where it is not one of them.
std::vector<graph::ValueId> fed_values(const nn::ModelGraph& net);

// What does not depend on a batch's size: the parameters, and what updates them.
struct Weights {
  // With the parameters' first values; the caller makes `update` when they are as they should be.
  Weights(gpu::Kernels& kernels, nn::ModelGraph of, uint64_t seed);

  nn::ModelGraph net;  // of the first batch
  graph::ParameterStore store;
  std::unique_ptr<optim::LossScale> loss_scale;  // of float16
  std::unique_ptr<optim::Update> update;
  parallel::DataParallel* ranks = nullptr;  // who share a step
  uint64_t age = 0;  // grows when they change
};

// A model on batches of one shape. What trains and what evaluates is made when it is first needed.
class Planned {
 public:
  // Throws Error(invalid_argument) that names the field where the parameters do not fit samples of this shape.
  Planned(gpu::Kernels& kernels, const nn::Model& model, Weights& weights, int64_t rows,
          const nn::Fields& fields);
  ~Planned();

  const int64_t rows;
  const nn::Fields fields;

  const nn::ModelGraph& net() const { return net_; }
  const std::vector<graph::ValueId>& fed() const { return fed_; }

  struct Training {  // in the order of their making: each may use those before it
    graph::Plan plan;
    gpu::Arena memory;                     // of the update and the feeds
    gpu::CommandList commands;             // the plan's, and the update
    std::unique_ptr<Reservoir> reservoir;  // for device echo
    std::unique_ptr<graph::Runner> runner;
  };
  // As `first` feeds it: later batches do it in the same way. `view_samples`: see Learner::expect_views().
  Training& make_training(const pipeline::Item& first, uint64_t view_samples);
  Training* training() { return training_.get(); }

  // For a batch of fed() and for one of the inputs; made anew where it comes in another way than the one before. Their
  // weights are those of now.
  graph::Runner& scorer(const pipeline::Item& batch);
  graph::Runner& predictor(const pipeline::Item& batch);
  bool scores(const pipeline::Item& batch) const;  // without making anything anew
  const gpu::Buffer& predicted() const;            // what the predictor wrote last

  // Fills what the runner's next step is fed. Throws Error(state) where a batch comes in another way than the runner's first.
  void fill(graph::Runner& runner, const std::vector<graph::ValueId>& values,
            const pipeline::Item& batch);

  uint64_t reserved_bytes() const;

 private:
  struct FedRunner;
  struct Evaluation;

  std::vector<graph::ValueId> outputs() const;
  void add_update(Training& training);
  std::vector<graph::Feed> feeds(gpu::Arena& memory, const std::vector<graph::ValueId>& values,
                                 const pipeline::Item& batch) const;
  Evaluation& evaluation();
  graph::Runner& fed_with(std::unique_ptr<FedRunner>& fed,
                          const std::vector<graph::ValueId>& values,
                          const std::vector<graph::ValueId>& read, int slots,
                          const pipeline::Item& batch);
  bool takes(const graph::Runner& runner, const std::vector<graph::ValueId>& values,
             const pipeline::Item& batch) const;
  void copy_rows(std::byte* to, const pipeline::Item& batch, const std::string& name) const;

  gpu::Kernels& kernels_;
  Weights& weights_;
  nn::ModelGraph net_;
  graph::ParameterStore store_;  // with constants of this shape
  std::vector<graph::ValueId> fed_;
  std::unique_ptr<Training> training_;
  std::unique_ptr<Evaluation> evaluation_;
};

// A few of them: the least recently used one goes beyond kMost, where together they take half of the device's memory, or
// where it has none for another.
class Plans {
 public:
  static constexpr size_t kMost = 8;

  Plans(gpu::Kernels& kernels, const nn::Model& model, Weights& weights)
      : kernels_(kernels), model_(model), weights_(weights) {}

  // For batches of this many rows exactly.
  Planned& exactly(int64_t rows, const nn::Fields& fields);

  // Sees to it that `planned` trains, with `first` as a batch to begin with. Others that trained on its shape go.
  void trained(Planned& planned, const pipeline::Item& first, uint64_t view_samples);

  // For evaluating: the smallest that is there for as many rows, or a new one, for fewer rows only where so many would take
  // too much of the device's memory.
  Planned& serving(int64_t rows, const nn::Fields& fields);

  // Of `planned`, as there.
  graph::Runner& scorer(Planned& planned, const pipeline::Item& batch);
  graph::Runner& predictor(Planned& planned, const pipeline::Item& batch);

  // The one that trained last; nullptr where none has, or it is gone.
  Planned* last_trained() { return last_trained_; }
  void forget_last() { last_trained_ = nullptr; }

  // Results of training steps by their tags; `wait_all` waits for those in flight first.
  std::map<uint64_t, graph::StepResult>& results(bool wait_all);
  int in_flight() const;
  uint64_t reserved_bytes() const;
  ReservoirStats reservoir() const;

 private:
  using Kept = std::list<std::unique_ptr<Planned>>;

  Planned* find(int64_t rows, const nn::Fields& fields);
  Planned& add(int64_t rows, const nn::Fields& fields);
  Planned& used(Kept::iterator it);
  void with_room(const Planned* planned, const std::function<void()>& make);
  bool drop_oldest(const Planned* but);
  Kept::iterator drop(Kept::iterator it);
  uint64_t memory_bytes() const;
  int64_t most_rows(int64_t rows, const nn::Fields& fields) const;

  gpu::Kernels& kernels_;
  const nn::Model& model_;
  Weights& weights_;
  Kept kept_;  // the most recently used first
  Planned* last_trained_ = nullptr;
  std::map<uint64_t, graph::StepResult> results_;
  bool warned_ = false;
};

}  // namespace etr::train
