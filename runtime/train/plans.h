// Plans of one model for batches of several shapes and sizes, with shared weights.
//
// A plan serves batches with its sample shape and at most its number of rows. A smaller batch
// repeats its rows, so that batch statistics stay sensible; losses ignore the repeated rows.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "train/planned.h"

namespace etr::train {

// Returns how much of the device's memory may be used.
uint64_t memory_of(const gpu::Device& device);

// Keeps a few plans. Drops the least recently used one beyond kMost, when all together take half of
// the device's memory, or when there is no memory for another.
class Plans {
 public:
  static constexpr size_t kMost = 8;

  // For `view_samples` see Learner::expect_views().
  Plans(gpu::Kernels& kernels, const nn::Model& model, Weights& weights, uint64_t view_samples)
      : kernels_(kernels), model_(model), weights_(weights), view_samples_(view_samples) {}

  gpu::Kernels& kernels() const { return kernels_; }
  const nn::Model& model() const { return model_; }
  Weights& weights() const { return weights_; }

  // Error(invalid_argument) if the model cannot take the batch, whatever its shape.
  Seen look_at(const pipeline::Item& batch) const;

  // Returns the plan to train on a batch. It has as many rows as the largest batch of that shape so
  // far, so that a resumed run fills up its batches as before. Throws if the batch does not fit.
  // `changes`: with ranks, whether any of them changes its plan; then all agree on rows.
  Planned& training(const pipeline::Item& batch, bool changes = false);
  // Returns whether the batch needs another plan than the latest training step's.
  bool changes(const pipeline::Item& batch) const;

  // Returns a plan to evaluate a batch: one with the rows of training steps if they had as many,
  // otherwise that of predicting().
  Planned& scoring(const Seen& seen);

  // Returns the smallest existing plan with enough rows, or a new one. The new one has fewer rows
  // than the batch only if so many would take too much of the device's memory.
  Planned& predicting(const Seen& seen);

  // Return the runners of `planned`. Drop other plans if their memory is needed.
  FedRunner& scorer(Planned& planned, const pipeline::Item& batch);
  FedRunner& predictor(Planned& planned, const pipeline::Item& batch);

  // The plan that trained last; nullptr if there is none, or it was dropped.
  Planned* last_trained() { return last_trained_; }
  bool ready_within(double seconds);  // see Learner

  // The most rows of a training step, by fields_text(). A resumed run takes them from its
  // checkpoint.
  const std::map<std::string, int64_t>& trained_rows() const { return trained_rows_; }
  void go_on_with(std::map<std::string, int64_t> trained_rows);

  // Returns the results of training steps by their tags. `wait_all` first waits for those in
  // flight.
  std::map<uint64_t, graph::StepResult>& results(bool wait_all);
  int in_flight() const;
  uint64_t reserved_bytes() const;
  ReservoirStats reservoir() const;

 private:
  using Kept = std::list<std::shared_ptr<Planned>>;

  Planned* find(int64_t rows, const nn::Fields& fields);
  Planned& exactly(int64_t rows, const nn::Fields& fields);
  Planned& add(int64_t rows, const nn::Fields& fields);
  Planned& used(Kept::iterator it);
  int64_t rows_to_train(const Seen& seen);
  int64_t most_trained(const nn::Fields& fields) const;
  void train_on(Planned& planned, const pipeline::Item& first);
  void with_room(const Planned* planned, const std::function<void()>& make);
  bool drop_oldest(const Planned* but);
  Kept::iterator drop(Kept::iterator it);
  int64_t most_rows(int64_t rows, const nn::Fields& fields) const;
  int64_t in_micro_batches(int64_t rows) const;

  gpu::Kernels& kernels_;
  const nn::Model& model_;
  Weights& weights_;
  const uint64_t view_samples_;
  Kept kept_;  // most recently used first
  Planned* last_trained_ = nullptr;
  std::map<std::string, int64_t> trained_rows_;
  std::map<uint64_t, graph::StepResult> results_;
  bool warned_ = false;
};

}  // namespace etr::train
