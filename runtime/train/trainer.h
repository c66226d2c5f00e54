// Runs a job: epochs, evaluation, checkpoints, metrics. The caller pulls events.
#pragma once

#include <atomic>
#include <exception>
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

// Returns the learner's part of a job.
LearnerSpec learner_spec(const Job& job);

// Used by one thread, except stop() and abort().
class Trainer {
 public:
  // Opens the device. Error(not_found) if there is no checkpoint to resume from or to evaluate.
  // Error(state) if a fresh run's folder holds an earlier run, or if another run writes into the
  // folder: until this one ends, fails or is destroyed, no second one can.
  //
  // With `ranks` (or a job's section 'parallel', which joins them) it is one of several trainers
  // that train together, each on its part of the data. All make the same calls. The first one
  // writes the run's folder. With a `membership` (or a job with a
  // parameter server, which it joins) it is one of the server's workers.
  Trainer(std::shared_ptr<gpu::Kernels> kernels, const Job& job, Start start,
          std::unique_ptr<Ranks> ranks = nullptr, std::unique_ptr<Membership> membership = nullptr);
  Trainer(std::shared_ptr<gpu::Kernels> kernels, const Job& job, bool resume)
      : Trainer(std::move(kernels), job, resume ? Start::resume : Start::new_run) {}
  ~Trainer();

  // Trains until there is an event. The last event is `end`, which further calls return again. If a
  // resumed run was already complete, `end` is the first event, and nothing is evaluated or written
  // again. If the device is lost, it is reopened and the run continues from its newest checkpoint.
  //
  // Throws the Error that ended the run, and further calls throw it again; what was written stays
  // valid. Error(state) for Start::evaluate.
  //
  // `seconds` limits the call: by then it returns a progress event, except during the first step
  // (which compiles kernels), an evaluation or a checkpoint, which cannot be interrupted. 0: the
  // job's progress_every.
  Event next_event(double seconds = 0);

  // Asks for an early, orderly end, with a checkpoint if the job writes any, and without waiting
  // for an evaluation. May be called on any thread, at any time, and from signal handlers.
  void stop() { stop_.store(true); }

  // Called if this rank cannot continue: whatever waits for it, here and on other ranks, fails with
  // this reason. May be called on any thread.
  void abort(const std::string& reason);

  // The run ends here, before it is over, and only the learner is still wanted: another run may use
  // the folder. Returns false, having done nothing, if others train along, who would miss it.
  bool let_go();

  // See Ranks::be_patient().
  void be_patient() { ranks_->be_patient(); }

  // Called between two progress events: next_event() of the other ranks then returns one, too, so
  // that all ranks can make another call. yielded() returns whether that is why next_event()
  // returned.
  void yield();
  bool yielded() const { return agreed_.yields; }

  // Sets the function that receives the progress of evaluations, on the calling thread. If it
  // returns false, evaluate() throws Error(cancelled), and a run continues without that evaluation.
  // A checkpoint of that step says that the evaluation is missing, and a run that resumes from it
  // makes it first.
  void on_evaluation(EvalProgress progress) { on_evaluation_ = std::move(progress); }

  // Like Learner::set_hyperparameter(), from the next step on. Collective: Error(invalid_argument)
  // on all ranks if they do not set the same.
  void set_hyperparameter(const std::string& name, double value);

  EvalMetrics evaluate();  // Error(state) if the job has no evaluation; Error(cancelled)
  // The training clock stands still until next_event(), once the steps in flight have ended.
  void pause();
  // Error(state) if the run has failed to begin again, on a new device or with other ranks.
  Learner& learner() {
    check_whole();
    return *learner_;
  }

  // Returns the learner with its parameters. Before the first step their shapes come from a batch
  // of the job's pipeline. Error(cancelled) if the run is stopped before there is one.
  Learner& shaped_learner();

  // In examples, from the measurements so far (train.noise_scale_every); none without an estimate.
  std::optional<double> noise_scale() const { return progress_.noise().value(); }

  // Profiles steps on the next batch of the job's pipeline; see Learner::profile. Error(state) if
  // the run is not a trial; Error(cancelled) if it is stopped before there is a batch.
  Json profile(int steps);
  // Returns the pipeline's statistics; with device echo also {"device_echo": {"capacity",
  // "uploaded", "reused"}} in examples.
  Json pipeline_stats() const;

 private:
  // Identifies a checkpoint. Checkpoints of one step can differ, because the end of an epoch and an
  // evaluation follow its last step.
  struct Saved {
    uint64_t step = 0, epoch = 0, evaluated_step = 0;
    bool operator==(const Saved&) const = default;
  };

  void check_whole() const;
  bool leads() const;
  void load_pretrained();
  void begin(std::shared_ptr<gpu::Kernels> kernels);
  void open(std::shared_ptr<gpu::Kernels> kernels);
  void recover(const Error& lost);
  void renew(const std::function<void()>& begin);
  bool can_regroup(const Error& error) const;
  void go_on_without(const Error& lost);
  bool admit_newcomers();
  void begin_again();
  void begin_as_others();
  void open_folder();
  void log_group() const;
  std::unique_ptr<parallel::Sharing> sharing(const gpu::DevicePtr& device);
  std::unique_ptr<parallel::ModelStage> model_stage(const gpu::DevicePtr& device);
  Json pipeline_spec(Json of) const;
  bool is_stopping() const;
  bool time_is_over() const;
  void await_batch(pipeline::Pipeline& from) const;
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
  std::optional<Error> own_failure(const Error& error);
  bool evaluation_due() const;
  Saved now() const { return {learner_->steps(), progress_.epoch(), progress_.evaluation().step}; }
  bool checkpoint_due() const;
  Event make_event(EventKind kind);
  std::optional<Event> evaluation_event();  // none if the evaluation was stopped
  uint64_t planned_end();
  checkpoint::Loaded newest_checkpoint();
  void work_apart(const std::function<void()>& work);
  std::string save();
  std::string write_checkpoint(checkpoint::Files& files);
  checkpoint::Loaded own_checkpoint() const;
  void load();
  void set_again();
  bool reaches_target() const;

  const Job job_;
  std::atomic<bool> stop_{false};           // the objects below look at it
  std::unique_ptr<Ranks> ranks_;            // null: no other ranks
  std::unique_ptr<Membership> membership_;  // null: no parameter server
  Ranks::Outlook agreed_;                   // by all ranks, before the latest step
  std::shared_ptr<gpu::Kernels> kernels_;
  // Made anew when the device or a rank was lost. None if that has failed, or after let_go().
  std::optional<Learner> learner_;
  std::optional<Supply> supply_;
  int recoveries_ = 0;
  const Start start_;
  std::unique_ptr<RunFolder> folder_;  // null: nothing is written, or not any more
  EvalProgress on_evaluation_;
  KeptBatches kept_evaluation_;
  struct Change {
    uint64_t step;
    std::string hyperparameter;
    double value;
  };
  // Made by the program; a learner that replaces this one repeats them.
  std::vector<Change> changes_;

  Progress progress_;
  // Measurements on the batches of steps in flight, by step.
  std::map<uint64_t, GradientSquares> noise_;
  bool epoch_gave_batch_ = false;
  std::optional<uint64_t> length_epoch_;  // the epoch of epoch_length_
  std::optional<uint64_t> epoch_length_;  // in batches; none if unknown
  EpochStart epoch_start_;                // of the current epoch
  std::optional<Milestone> resumed_at_;   // epoch_start_ has yet to be derived from it
  Saved saved_;
  uint64_t steps_here_ = 0;             // made by this process
  uint64_t evaluation_tried_step_ = 0;  // of the latest evaluation, including a stopped one
  bool ended_ = false, target_reached_ = false;
  bool has_saved_ = false;  // whether this run, or the one that it continues, has a checkpoint
  bool warm_ = false;  // whether the first step of this process, which compiles kernels, is done
  std::exception_ptr failure_;  // that has ended the run
};

}  // namespace etr::train
