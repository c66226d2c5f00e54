#include "train/evaluation_input.h"

#include <limits>

#include "core/text.h"
#include "train/patience.h"

namespace etr::train {

EvaluationInput::EvaluationInput(pipeline::Pipeline& pipeline, const EvalProgress& progress,
                                 const std::atomic<bool>* stop)
    : pipeline_(pipeline), progress_(progress), stop_(stop) {
  go_to_next_epoch();
}

void EvaluationInput::go_to_next_epoch() {
  const uint64_t before = pipeline_.epoch();
  pipeline::Item batch;
  while (pipeline_.within_epoch()) {
    wait();
    if (pipeline_.next(batch) != pipeline::Pipeline::Next::item) break;
    if (stopped() || (progress_ && !progress_(0, -1))) fail_stopped();
  }
  if (pipeline_.over())
    fail(Code::invalid_argument, "it takes a whole epoch, and the pipeline has no epoch left",
         pipeline_.epoch() == before ? "" : ": the last one had begun",
         " (leave its 'epochs' out, set it higher, or make a new pipeline)");
  if (const auto length = progress_ ? pipeline_.length() : std::nullopt)
    batches_ = static_cast<int64_t>(*length);
}

void EvaluationInput::wait() {
  const auto left = [this] { return stopped() ? 0 : std::numeric_limits<double>::infinity(); };
  if (!wait_for_data(pipeline_, left)) fail_stopped();
}

bool EvaluationInput::next(pipeline::Item& batch) {
  wait();
  return pipeline_.next(batch) == pipeline::Pipeline::Next::item;
}

void EvaluationInput::done() {
  ++done_;
  if (stopped() || (progress_ && !progress_(done_, batches_))) fail_stopped();
}

void EvaluationInput::fail_stopped() const {
  fail(Code::cancelled, "the evaluation was stopped ",
       done_ == 0 ? "before the first batch of its epoch"
                  : "after " + counted(done_, "batch", "batches"));
}

}  // namespace etr::train
