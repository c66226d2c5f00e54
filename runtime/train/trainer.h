// Runs a job: epochs, evaluation, checkpoints, metrics. The caller pulls events.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "train/event.h"
#include "train/job.h"
#include "train/learner.h"
#include "train/membership.h"
#include "train/milestones.h"
#include "train/progress.h"
#include "train/ranks.h"
#include "train/run_folder.h"
#include "train/supply.h"

namespace etr::train {

// What a learner needs to know of a job.
LearnerSpec learner_spec(const Job& job);

// Used by one thread, but for stop().
class Trainer {
 public:
  // Opens the device. Throws Error(not_found) where there is no checkpoint to resume from or to evaluate, Error(state) where
  // a fresh run's folder holds an earlier run, and where another run writes into the folder: until this one's end, failure
  // or destruction no second one can.
  // With `ranks` (or a job's section 'parallel', which joins them) it is one of several that train together, each on its part of
  // the data: all make the same calls, and save() too is a call of all. The first one writes the run's folder.
  // With a `membership` (or a job that has a parameter server, which it joins) it is one of its workers.
  Trainer(std::shared_ptr<gpu::Kernels> kernels, const Job& job, Start start,
          std::unique_ptr<Ranks> ranks = nullptr, std::unique_ptr<Membership> membership = nullptr);
  Trainer(std::shared_ptr<gpu::Kernels> kernels, const Job& job, bool resume)
      : Trainer(std::move(kernels), job, resume ? Start::resume : Start::fresh) {}
  ~Trainer();

  // Trains until there is something to tell. The last event is `end`; then it returns it again. It is the first one where
  // the run that was resumed is complete; nothing is evaluated or written again. Where the device is lost, it is opened again and
  // the run goes on from its newest checkpoint.
  // Throws the Error that ended the run; what was written stays valid. Error(state) for Start::evaluate.
  // `seconds` is the call's budget: it returns a progress event by then, but for the first step (which compiles kernels), an
  // evaluation and a checkpoint, which are not divided; 0 takes the job's progress_every.
  Event next_event(double seconds = 0);

  // Asks for an early, orderly end, with a checkpoint if the job writes any, and without waiting for an evaluation. Any
  // thread, any time, signal handlers too.
  void stop() { stop_.store(true); }

  // This rank cannot go on: all that wait for it, here and on other ranks, end with this reason. Any thread.
  void abort(const std::string& reason);

  // See Ranks::be_patient().
  void be_patient() { ranks_->be_patient(); }

  // Between two progress events: next_event() of the other ranks returns one too, so that all may make another call. yielded():
  // whether that is why.
  void yield();
  bool yielded() const { return agreed_.yields; }

  // Is told how evaluations go on, on the thread that calls; where it returns false, evaluate() throws Error(cancelled)
  // and a run goes on without that evaluation. A checkpoint of that step says that the evaluation is missing: a run that
  // resumes from it makes it first.
  void on_evaluation(EvalProgress progress) { on_evaluation_ = std::move(progress); }

  // As Learner::set_hyperparameter(), from the next step on. A call of all ranks: Error(invalid_argument) on all where they do not
  // say the same.
  void set_hyperparameter(const std::string& name, double value);

  EvalMetrics evaluate();  // Error(state) where the job has no evaluation; Error(cancelled)
  std::string save();      // a checkpoint now; Error(state) for a trainer that writes nothing
  Learner& learner() { return *learner_; }

  // The learner with its parameters; before the first step their shapes come from a batch of the job's pipeline.
  Learner& shaped_learner();

  // In examples, by the measurements so far (train.noise_scale_every); none where there is no estimate.
  std::optional<double> noise_scale() const { return progress_.noise().value(); }

  // Profiles steps on the next batch of the job's pipeline; see Learner::profile.
  Json profile(int steps);
  // Of the pipeline; with device echo also {"device_echo": {"capacity", "uploaded", "reused"}} in examples.
  Json pipeline_stats() const;

 private:
  bool leads() const;
  void begin(std::shared_ptr<gpu::Kernels> kernels);
  void open(std::shared_ptr<gpu::Kernels> kernels);
  void recover(const Error& lost);
  bool can_regroup(const Error& error) const;
  void go_on_without(const Error& lost);
  bool admit_newcomers();
  void begin_again();
  void begin_as_others();
  void open_folder();
  void tell_group() const;
  std::unique_ptr<parallel::Sharing> sharing(const gpu::DevicePtr& device);
  std::unique_ptr<parallel::ModelStage> model_stage(const gpu::DevicePtr& device);
  Json pipeline_spec(Json of) const;
  bool is_stopping() const;
  bool time_is_over() const;
  bool is_ready(const std::function<double()>& left);
  bool saves() const;
  Event advance_or_recover(double seconds);
  Event advance(double seconds);
  Milestone milestone() const;
  bool finished() const;
  bool ends_all() const;
  void go_on(const std::function<double()>& left);
  void train_one();
  bool noise_due() const;
  void take_metrics(bool wait_all);
  bool evaluation_due() const;
  bool checkpoint_due() const;
  Event make_event(EventKind kind);
  std::optional<Event> evaluation_event();  // none where the evaluation was stopped
  uint64_t planned_end();
  checkpoint::Loaded newest_checkpoint();
  checkpoint::Loaded own_checkpoint() const;
  void load();
  void set_again();
  bool reaches_target() const;

  const Job job_;
  std::atomic<bool> stop_{false};           // which those below look at
  std::unique_ptr<Ranks> ranks_;            // none: it trains alone, or
  std::unique_ptr<Membership> membership_;  // with a parameter server
  Ranks::Outlook agreed_;                   // with these
  std::shared_ptr<gpu::Kernels> kernels_;
  std::optional<Learner> learner_;  // made anew where the device was lost
  std::optional<Supply> supply_;
  int recoveries_ = 0;
  const Start start_;
  std::unique_ptr<RunFolder> folder_;  // none where nothing is written
  EvalProgress on_evaluation_;
  struct Change {
    uint64_t step;
    std::string hyperparameter;
    double value;
  };
  std::vector<Change>
      changes_;  // made by the program; learners that take this one's place make them, too

  Progress progress_;
  std::map<uint64_t, GradientSquares>
      noise_;  // by the steps in flight on whose batches it was measured
  bool epoch_gave_batch_ = false;
  std::optional<uint64_t> length_epoch_;  // the epoch that epoch_length_ is of
  std::optional<uint64_t> epoch_length_;  // in batches; none where that is not known
  EpochStart epoch_start_;                // of the latest epoch; where the run was resumed,
  std::optional<Milestone> resumed_at_;   // to be found from this
  uint64_t saved_step_ = 0;
  uint64_t steps_here_ = 0;             // of this process
  uint64_t evaluation_tried_step_ = 0;  // of the latest evaluation, also one that was stopped
  bool ended_ = false, target_reached_ = false;
  bool has_saved_ = false;  // this run, or the one that it goes on with, has a checkpoint
  bool warm_ = false;       // the first step of this process, which compiles kernels, is done
};

}  // namespace etr::train
