// What an evaluation reads, and whom it asks whether it goes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "core/error.h"
#include "pipeline/pipeline.h"

namespace etr::train {

// Batches done, and batches in all; -1 where that is not known.
using EvalProgress = std::function<bool(int64_t done, int64_t batches)>;

// The batches of one whole epoch of a pipeline. `progress` (may be empty) and `stop` (may be NULL) are as for
// Learner::evaluate(): each call throws Error(cancelled) where they end the evaluation.
class EvaluationInput {
 public:
  // Reads past what is left of an epoch that has begun: its first batches were others'. Error(invalid_argument) where there
  // is no further epoch.
  EvaluationInput(pipeline::Pipeline& pipeline, const EvalProgress& progress,
                  const std::atomic<bool>* stop);

  bool next(pipeline::Item& batch);  // false at the epoch's end
  void done();                       // with the batch that next() gave: tells `progress`

 private:
  void go_to_next_epoch();
  bool stopped() const { return stop_ && stop_->load(); }
  void wait();
  [[noreturn]] void fail_stopped() const;

  pipeline::Pipeline& pipeline_;
  const EvalProgress& progress_;
  const std::atomic<bool>* const stop_;
  int64_t done_ = 0, batches_ = -1;
};

// Errors of `call` say that they are an evaluation's. A stop is no error.
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
