// Plans of one model for batches of several shapes and sizes, over weights that they share.
//
// A plan serves batches of its samples' shape with as many rows as it was made for, or fewer: rows beyond a smaller batch
// repeat it, so that batch statistics stay sane, and losses leave them out.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "train/planned.h"

namespace etr::train {

// Of a device, as far as it may be taken.
uint64_t memory_of(const gpu::Device& device);

// A few of them: the least recently used one goes beyond kMost, where together they take half of the device's memory, or
// where it has none for another.
class Plans {
 public:
  static constexpr size_t kMost = 8;

  // `view_samples`: see Learner::expect_views().
  Plans(gpu::Kernels& kernels, const nn::Model& model, Weights& weights, uint64_t view_samples)
      : kernels_(kernels), model_(model), weights_(weights), view_samples_(view_samples) {}

  gpu::Kernels& kernels() const { return kernels_; }
  const nn::Model& model() const { return model_; }
  Weights& weights() const { return weights_; }

  // Throws Error(invalid_argument) where the model cannot take the batch, whatever its shape.
  Seen look_at(const pipeline::Item& batch) const;

  // What trains on a batch. For as many rows as any batch of its shape had, so that a run that goes on fills its batches up as
  // before. Throws where the batch does not fit.
  // `changes`: with ranks, whether any of them changes its plan: all then agree on rows.
  Planned& training(const pipeline::Item& batch, bool changes = false);
  // Whether the batch is not for the plan that was trained on last.
  bool changes(const pipeline::Item& batch) const;

  // What evaluates a batch: where steps had as many rows, what has theirs; otherwise as predicting().
  Planned& scoring(const Seen& seen);

  // The smallest that is there for as many rows, or a new one, for fewer rows only where so many would take too much of the
  // device's memory.
  Planned& predicting(const Seen& seen);

  // Of `planned`, as there.
  FedRunner& scorer(Planned& planned, const pipeline::Item& batch);
  FedRunner& predictor(Planned& planned, const pipeline::Item& batch);

  // The one that trained last; nullptr where none has, or it is gone.
  Planned* last_trained() { return last_trained_; }
  bool ready_within(double seconds);  // as there: see Learner

  // The most rows that a step had, by fields_text(): a checkpoint's are those to go on with.
  const std::map<std::string, int64_t>& trained_rows() const { return trained_rows_; }
  void go_on_with(std::map<std::string, int64_t> trained_rows);

  // Results of training steps by their tags; `wait_all` waits for those in flight first.
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
  Kept kept_;  // the most recently used first
  Planned* last_trained_ = nullptr;
  std::map<std::string, int64_t> trained_rows_;
  std::map<uint64_t, graph::StepResult> results_;
  bool warned_ = false;
};

}  // namespace etr::train
