// A rank for tests: a model that trains on its rows of a batch that all ranks share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "graph/runner.h"
#include "nn/model.h"
#include "nn/split.h"
#include "optim/hyperparameters.h"
#include "optim/update.h"
#include "parallel/data_parallel.h"
#include "support/device.h"

namespace etr::test {

using parallel::DataParallel;

struct Problem {
  std::string name, model;
  Shape sample;
  std::string optimizer = R"({"optimizer": "sgd", "momentum": 0.9})";
  bool sync_batch_norm = false;
  int32_t symbols = 0;  // samples consist of so many different symbols; 0: of floats
  float learning_rate = 0.05f;
};

inline void PrintTo(const Problem& problem, std::ostream* out) { *out << problem.name; }

class Worker {
 public:
  Worker(const Problem& problem, int64_t rows, const gpu::DevicePtr& device,
         DataParallel* parallel = nullptr)
      : kernels_(device),
        rows_(rows),
        symbols_(problem.symbols),
        learning_rate_(problem.learning_rate),
        split_(net_of(problem, rows, parallel)),
        net_(split_.net),
        // Seeds differ, as between real ranks; only the first rank's weights count.
        store_(kernels_.device(), net_.graph, parallel ? 100 + parallel->rank() : 100),
        accumulate_(static_cast<uint32_t>(
            optim::UpdateSpec(parse_json(problem.optimizer, "test")).accumulate())),
        hyperparameters_(optim::UpdateSpec(parse_json(problem.optimizer, "test"))),
        update_(optim::UpdateSpec(parse_json(problem.optimizer, "test")), store_),
        tensor_(parallel ? parallel->tensor() : nullptr),
        row_peers_(parallel ? parallel->row_peers(rows) : nullptr),
        slice_peers_(tensor_ ? tensor_->peers() : nullptr),
        plan_(kernels_, net_.graph, store_, options()),
        memory_(kernels_.device(), gpu::MemoryUse::device) {
    graph::Runner::Work work{plan_.commands(), true};
    const gpu::Buffer &loss = plan_.tensor(net_.loss).buffer,
                      &accuracy = plan_.tensor(net_.accuracy).buffer, &values = plan_.step_values();
    if (parallel) {
      work.commands = parallel->with_update(
          plan_.commands(), update_, store_,
          {values, {loss, accuracy}, plan_.row_weights().front(), &split_.slices}, kernels_,
          memory_);
    } else {
      ops::Emitter emit(kernels_, memory_, work.commands);
      update_.emit(emit, loss, values);
    }
    if (parallel) parallel->agree_on_unit(graph::elements_of_mean(net_.graph, net_.loss));
    if (parallel) parallel->share(store_);
    runner_ = std::make_unique<graph::Runner>(kernels_, plan_,
                                              std::vector<graph::Feed>{net_.inputs[0], net_.target},
                                              std::vector{net_.loss, net_.accuracy}, work);
  }

  // Trains on `valid` rows of the step's batch from `first` on. `not_a_number`: one value is NaN.
  void step(uint32_t step, int64_t first, int64_t valid, bool not_a_number = false) {
    auto* x = reinterpret_cast<float*>(runner_->input(0));
    auto* labels = reinterpret_cast<int32_t*>(runner_->input(1));
    const int64_t size = element_count(net_.graph.shape(net_.inputs[0])) / rows_;
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t of = first + row % valid;
      for (int64_t i = 0; i < size; ++i)
        if (symbols_)
          reinterpret_cast<int32_t*>(x)[row * size + i] =
              static_cast<int32_t>(step * 31 + of * 7 + i * (of % 3 + 1)) % symbols_;
        else
          x[row * size + i] =
              std::sin(static_cast<float>(1 + step * 31 + of * 7 + i * (of % 3 + 1)));
      labels[row] = static_cast<int32_t>((of + step) % 5);
    }
    if (not_a_number) x[3] = std::nanf("");
    ops::StepValues values;
    values.step = step;
    values.seed_lo = 7;
    values.valid_rows = static_cast<uint32_t>(valid);
    values.first_row = static_cast<uint32_t>(first);
    values.rows = static_cast<uint32_t>(rows_);
    values.learning_rate = learning_rate_;
    values.update = (step + 1) % accumulate_ == 0 ? (step + 1) / accumulate_ : 0;
    values.flags = step % accumulate_ == 0 ? ops::StepValues::kFirstOfUpdate : 0;
    hyperparameters_.put(values, 0);
    runner_->submit(values, step);
  }

  void wait() { runner_->wait(); }
  std::vector<graph::StepResult> results() { return runner_->take_results(true); }

  // Returns whole weights and, with `states`, the running statistics of batch normalisation.
  std::vector<float> weights(bool states = true) const {
    std::vector<float> out;
    for (auto& [name, tensor] : store_.download()) {
      if (!states && !store_.is_trainable(name)) continue;
      if (const auto slice = split_.slices.find(name); slice != split_.slices.end())
        tensor = tensor_->gather(tensor, slice->second);
      const auto values = tensor.view<float>();
      out.insert(out.end(), values.begin(), values.end());
    }
    return out;
  }

  const nn::SplitModel& split() const { return split_; }
  int64_t trainable() const { return store_.trainable(); }

 private:
  static nn::SplitModel net_of(const Problem& problem, int64_t rows, DataParallel* parallel) {
    const DType dtype = problem.symbols ? DType::i32 : DType::f32;
    nn::ModelGraph whole =
        nn::Model(parse_json(problem.model, "test"))
            .build(rows, {{"image", {dtype, problem.sample}}, {"label", {DType::i32, {}}}});
    if (!parallel || !parallel->tensor()) return {std::move(whole), {}, {}, {}};
    return nn::split(whole, parallel->tensor()->rank(), parallel->tensor()->size());
  }

  graph::PlanOptions options() const {
    graph::PlanOptions options;
    options.training = true;
    options.loss = net_.loss;
    options.outputs = {net_.loss, net_.accuracy};
    options.weighed = net_.loss;
    options.peers = {row_peers_.get(), slice_peers_.get()};
    return options;
  }

  gpu::Kernels kernels_;
  const int64_t rows_;
  const int32_t symbols_;
  const float learning_rate_;
  const nn::SplitModel split_;
  const nn::ModelGraph& net_;
  graph::ParameterStore store_;
  const uint32_t accumulate_;
  optim::Hyperparameters hyperparameters_;
  optim::Update update_;
  parallel::TensorParallel* const tensor_;
  std::unique_ptr<ops::RowPeers> row_peers_;
  std::unique_ptr<ops::SlicePeers> slice_peers_;
  graph::Plan plan_;
  gpu::Arena memory_;
  std::unique_ptr<graph::Runner> runner_;
};

struct Outcome {
  std::vector<graph::StepResult> results;
  std::vector<float> weights;
};

}  // namespace etr::test
