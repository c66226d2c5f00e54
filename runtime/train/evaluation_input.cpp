#include "train/evaluation_input.h"

#include <limits>

#include "core/text.h"
#include "train/patience.h"

namespace etr::train {

void KeptBatches::begin_epoch() {
  batches_.clear();
  bytes_ = 0;
  complete_ = false;
}

void KeptBatches::forget() {
  begin_epoch();
  fits_ = true;
}

void KeptBatches::add(const pipeline::Item& batch) {
  if (!fits_) return;
  bytes_ += batch.size_bytes();
  fits_ = bytes_ <= most_bytes_;
  if (fits_)
    batches_.push_back(batch);
  else
    batches_.clear();
}

EvaluationInput::EvaluationInput(pipeline::Pipeline& pipeline, const EvalProgress& progress,
                                 const std::atomic<bool>* stop, KeptBatches* keep)
    : pipeline_(&pipeline), keep_(keep), progress_(progress), stop_(stop) {
  go_to_next_epoch();
  if (keep_) keep_->begin_epoch();
}

EvaluationInput::EvaluationInput(const KeptBatches& kept, const EvalProgress& progress,
                                 const std::atomic<bool>* stop)
    : kept_(&kept),
      progress_(progress),
      stop_(stop),
      batches_(static_cast<int64_t>(kept.batches().size())) {}

void EvaluationInput::go_to_next_epoch() {
  const uint64_t before = pipeline_->epoch();
  pipeline::Item batch;
  while (pipeline_->within_epoch()) {
    wait();
    if (pipeline_->next(batch) != pipeline::Pipeline::Next::item) break;
    if (stopped() || (progress_ && !progress_(0, -1))) fail_stopped();
  }
  if (pipeline_->over())
    fail(Code::invalid_argument, "it takes a whole epoch, and the pipeline has no epoch left",
         pipeline_->epoch() == before ? "" : ": the last one had begun",
         " (leave its 'epochs' out, set it higher, or make a new pipeline)");
  if (const auto length = progress_ ? pipeline_->length() : std::nullopt)
    batches_ = static_cast<int64_t>(*length);
}

void EvaluationInput::wait() {
  const auto left = [this] { return stopped() ? 0 : std::numeric_limits<double>::infinity(); };
  if (!wait_for_data(*pipeline_, left)) fail_stopped();
}

bool EvaluationInput::next(pipeline::Item& batch) {
  if (kept_) {
    if (stopped()) fail_stopped();
    if (done_ == batches_) return false;
    batch = kept_->batches()[static_cast<size_t>(done_)];
    return true;
  }
  wait();
  const bool is_batch = pipeline_->next(batch) == pipeline::Pipeline::Next::item;
  if (keep_ && is_batch) keep_->add(batch);
  if (keep_ && !is_batch) keep_->end_epoch(pipeline_->bad_record_list().empty());
  return is_batch;
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
