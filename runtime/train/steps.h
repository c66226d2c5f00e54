// Training steps, from their start to their results.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "optim/hyperparameters.h"
#include "optim/schedule.h"
#include "pipeline/item.h"
#include "train/batch_fields.h"
#include "train/noise_scale.h"
#include "train/plans.h"

namespace etr::train {

struct StepMetrics {
  uint64_t step = 0;   // 1 is the first
  float loss = 0;      // mean over the batch's samples
  float accuracy = 0;  // share of correct samples; 0 for models that do not classify
  float learning_rate = 0;
  SampleCounts counts;
  double busy_seconds = 0;  // device time; 0 if the device has no timestamps
  // A gradient overflowed float16: the update that the step belongs to is not made, and the loss
  // scale was halved.
  bool skipped = false;
  std::optional<GradientSquares> noise;  // measured on the step's batch, if due
};

// Holds what the device may read until a step is done, so the plans must be destroyed first.
class Steps {
 public:
  // `label_smoothing`: that of the loss, if it has any.
  Steps(optim::Schedule schedule, const optim::UpdateSpec& update,
        std::optional<double> label_smoothing, uint64_t seed)
      : schedule_(std::move(schedule)),
        hyperparameters_(update, label_smoothing, schedule_),
        accumulate_(static_cast<uint64_t>(update.accumulate())),
        seed_(seed) {}

  // Returns whether there are steps that take_metrics() has not returned yet.
  bool has_untaken() const { return !started_.empty() || !finished_.empty() || failed_; }

  uint64_t count() const { return passed_.steps; }         // started steps
  const optim::Passed& passed() const { return passed_; }  // in started steps
  uint64_t latest_fresh() const { return latest_fresh_; }  // examples of the latest started step

  // `all_ranks`: the samples of all ranks' batches; none: those of this batch.
  void start(Plans& plans, const pipeline::Item& batch,
             const std::optional<SampleCounts>& all_ranks = {}, bool plan_changes = false);

  // Returns the commands that copy the batch to where the next step would read it. The caller runs
  // them instead of a step. No step may be in flight.
  gpu::CommandList input_commands(const Plans& plans, Planned& planned,
                                  const pipeline::Item& batch) const;

  // Computes the gradients of the batch as the next step would, and leaves them in the store
  // without an update. Waits for the device. State that changes without an update (running
  // statistics) does change.
  void compute_gradients(Plans& plans, const pipeline::Item& batch) const;

  // For passes one by one (train/passes.h): the values of the `pass`-th forward pass, from 0, since
  // the last update, and of an update after passes over so many samples.
  ops::StepValues values_of_pass(uint32_t pass) const;
  ops::StepValues values_of_update(const SampleCounts& counts) const { return values_of(counts); }
  void count_step(const SampleCounts& counts);  // after such an update

  optim::Hyperparameters& hyperparameters() { return hyperparameters_; }
  const optim::Hyperparameters& hyperparameters() const { return hyperparameters_; }
  // Writes the hyperparameters of the next step.
  void put_hyperparameters(ops::StepValues& values) const;

  void wait_oldest();  // like Learner::wait_oldest()
  // Like Learner::take_metrics().
  std::vector<StepMetrics> take_metrics(Plans& plans, bool wait_all);

  // Continues after the steps of `passed`. Forgets a step that was not finite, and those after it.
  void go_on_after(const optim::Passed& passed, uint64_t latest_fresh, Plans* plans);

 private:
  struct Started {
    uint64_t ticket;      // of its results; step numbers repeat when a checkpoint is loaded
    StepMetrics metrics;  // without its results
    ops::StepValues values;
    pipeline::Item batch;            // shares its tensors; empty if it is never repeated
    std::weak_ptr<Planned> planned;  // may be gone
  };
  struct Failed {
    Started step;
    float loss;
  };

  ops::StepValues values_of(const SampleCounts& counts) const;
  ops::StepValues values_for(const pipeline::Item& batch, const Plans& plans,
                             const SampleCounts& counts, const Planned& planned) const;
  void collect(Plans& plans, bool wait_all);
  void forget_started(Plans& plans);
  [[noreturn]] void fail_not_finite(Plans& plans);

  const optim::Schedule schedule_;
  optim::Hyperparameters hyperparameters_;
  const uint64_t accumulate_;
  const uint64_t seed_;
  optim::Passed passed_;
  uint64_t latest_fresh_ = 0;
  std::deque<Started> started_;        // without a known result
  std::vector<StepMetrics> finished_;  // for take_metrics() to return, and then
  std::optional<Failed> failed_;       // to throw
  uint64_t tickets_ = 0;
};

}  // namespace etr::train
