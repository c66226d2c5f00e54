// The batches of an evaluation, and the checks for whether it continues.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "pipeline/pipeline.h"

namespace etr::train {

// Gets the batches done and the number of batches, -1 if unknown. Returns false to end the
// evaluation.
using EvalProgress = std::function<bool(int64_t done, int64_t batches)>;

// Keeps the batches of a job's evaluation if they are the same each time, so that they need not be
// read and decoded again. Keeps none if all of them would take more than `most_bytes`.
class KeptBatches {
 public:
  explicit KeptBatches(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  void begin_epoch();
  void add(const pipeline::Item& batch);
  // `whole`: no record was dropped; a dropped one might be there the next time.
  void end_epoch(bool whole) { complete_ = whole && fits_ && !batches_.empty(); }
  void forget();  // called if the next epoch has other batches

  bool complete() const { return complete_; }
  const std::vector<pipeline::Item>& batches() const { return batches_; }

 private:
  const uint64_t most_bytes_;
  std::vector<pipeline::Item> batches_;
  uint64_t bytes_ = 0;
  bool fits_ = true;  // false: the epochs are too large to keep
  bool complete_ = false;
};

// The batches of one whole epoch of a pipeline. `progress` (may be empty) and `stop` (may be
// nullptr) are those of Learner::evaluate(); each call throws Error(cancelled) if they end the
// evaluation.
class EvaluationInput {
 public:
  // If an epoch has begun, skips the rest of it. Error(invalid_argument) if there is no further
  // epoch. `keep` (may be nullptr) receives the epoch.
  EvaluationInput(pipeline::Pipeline& pipeline, const EvalProgress& progress,
                  const std::atomic<bool>* stop, KeptBatches* keep = nullptr);
  // Returns the batches of an epoch that was kept as a whole.
  EvaluationInput(const KeptBatches& kept, const EvalProgress& progress,
                  const std::atomic<bool>* stop);

  bool next(pipeline::Item& batch);  // false at the end of the epoch
  void done();                       // the batch from next() is done: calls `progress`
  // Not for kept batches, which are never empty.
  std::string why_empty() const { return pipeline_->why_empty(); }

 private:
  void go_to_next_epoch();
  bool stopped() const { return stop_ && stop_->load(); }
  void wait();
  [[noreturn]] void fail_stopped() const;

  pipeline::Pipeline* const pipeline_ = nullptr;  // nullptr: the batches come from kept_
  KeptBatches* const keep_ = nullptr;
  const KeptBatches* const kept_ = nullptr;
  const EvalProgress& progress_;
  const std::atomic<bool>* const stop_;
  int64_t done_ = 0, batches_ = -1;
};

// Prefixes errors of `call` with "evaluation: ", except Error(cancelled).
template <typename Call>
auto in_evaluation(Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    if (error.code() == Code::cancelled) throw;
    fail(error.code(), "evaluation: ", error.what());
  }
}

}  // namespace etr::train
