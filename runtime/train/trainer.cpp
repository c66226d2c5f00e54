#include "train/trainer.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "parallel/local_rows.h"
#include "train/algorithm.h"
#include "train/patience.h"
#include "train/rows.h"

namespace etr::train {
namespace {

// Applies also to ranks over a transport of the program, whose job needs no section 'parallel'.
size_t batches_ahead(const Job& job) {
  return job.parallel() ? static_cast<size_t>(job.parallel()->integer("batches_ahead")) : 8;
}

bool is_trial(Start start) { return start == Start::trial || start == Start::study; }

bool only_looks(Start start) { return start == Start::evaluate || is_trial(start); }

// A budget is for all memory that a pipeline's samples take.
uint64_t keepable_bytes(const Job& job) {
  if (!job.evaluation()) return 0;
  const Json& pipeline = job.evaluation_pipeline();
  const auto& stages = pipeline["stages"];
  if (pipeline.value("budget_bytes", Json(0)) != 0 ||
      std::any_of(stages.begin(), stages.end(), is_by_clock))
    return 0;
  return static_cast<uint64_t>(job.evaluation()->number("cache_mb") * 1e6);
}

}  // namespace

LearnerSpec learner_spec(const Job& job) {
  return {job.model(),
          job.optimizer(),
          job.schedule(),
          job.seed(),
          planned_steps(job.train()),
          job.train().integer("fresh")};
}

Trainer::Trainer(std::shared_ptr<gpu::Kernels> kernels, const Job& job, Start start,
                 std::unique_ptr<Ranks> ranks, std::unique_ptr<Membership> membership)
    : job_(job),
      ranks_(ranks             ? std::move(ranks)
             : is_trial(start) ? nullptr
                               : join_ranks(job)),
      membership_(membership                    ? std::move(membership)
                  : only_looks(start) || ranks_ ? nullptr
                                                : join_servers(job)),
      start_(start),
      kept_evaluation_(keepable_bytes(job)) {
  try {
    begin(std::move(kernels));
  } catch (const std::exception& error) {
    if (ranks_) ranks_->abort(error.what());
    throw;
  }
}

// A new run begins with the weights that the job names. So does a run that loads a checkpoint of
// adapters, which are made for these weights.
void Trainer::load_pretrained() {
  const std::string path = job_.train().string("pretrained");
  const bool loads = start_ == Start::resume || start_ == Start::evaluate;
  if (path.empty() || (loads && !job_.model().contains("lora"))) return;
  if (membership_)
    fail(Code::unsupported,
         "train: 'pretrained' cannot be combined with a parameter server, which owns the weights");
  learner_->load_pytorch(path, job_.pretrained_names());
}

void Trainer::begin(std::shared_ptr<gpu::Kernels> kernels) {
  if (ranks_) ranks_->lay_out(job_.mesh());
  open(std::move(kernels));
  const Options& train = job_.train();
  if (train.integer("epochs") == 0 && train.integer("steps") == 0 && train.integer("fresh") == 0 &&
      train.number("seconds") == 0)
    fail(Code::invalid_argument,
         "train: set 'epochs', 'steps', 'fresh' or 'seconds', or the run would never end");
  if (train.integer("noise_scale_every") > 0 && (ranks_ || membership_))
    fail(Code::unsupported,
         "train: 'noise_scale_every' measures on one device, but here several train "
         "together: leave it out, or measure in a run on one device");
  const auto directory = job_.output_dir();
  has_saved_ = start_ == Start::resume;
  if (leads() && !directory && (start_ == Start::new_run || start_ == Start::overwrite))
    log_line(LogLevel::warning,
             "this run saves nothing, no checkpoint and no metrics: the job has no output.dir "
             "(\"\" says that this is meant)");
  const auto open_own_folder = [&] {
    if (leads() && directory.value_or("") != "" && !is_trial(start_))
      folder_ =
          std::make_unique<RunFolder>(*directory, start_, job_.output().boolean("tensorboard"));
  };
  if (ranks_ && ranks_->is_newcomer()) {  // the others have begun
    open_own_folder();
    begin_as_others();
  } else {
    work_apart(open_own_folder);
    if (start_ == Start::resume && (!membership_ || leads())) load();
  }
  if (start_ == Start::evaluate) {
    const checkpoint::Loaded loaded = newest_checkpoint();
    learner_->load(loaded.files, cat("the checkpoint '", loaded.path, "'"));
  }
}

Trainer::~Trainer() = default;

void Trainer::check_whole() const {
  if (!learner_)
    fail(Code::state,
         "this run has lost its device or a rank, and could not begin again; start it with resume, "
         "from its newest checkpoint");
}

void Trainer::open(std::shared_ptr<gpu::Kernels> kernels) {
  kernels_ = kernels;
  const bool is_split = ranks_ && ranks_->mesh().length(parallel::Axis::pipeline) > 1;
  auto stage = is_split ? model_stage(kernels->device()) : nullptr;
  auto exchange = is_split ? nullptr : sharing(kernels->device());
  learner_.emplace(std::move(kernels), learner_spec(job_), std::move(exchange), std::move(stage));
  supply_.emplace(pipeline_spec(job_.pipeline()), ranks_.get(), batches_ahead(job_));
  learner_->expect_views(supply_->pipeline().view_samples());
  load_pretrained();
  set_again();
}

std::unique_ptr<parallel::Sharing> Trainer::sharing(const gpu::DevicePtr& device) {
  // When a run is resumed, the first worker has the checkpoint.
  if (membership_) return membership_->sharing(device, start_ != Start::resume || leads(), &stop_);
  if (start_ == Start::evaluate && uses_servers(job_) && nn::Model(job_.model()).has_sparse())
    return std::make_unique<parallel::LocalRows>();
  return ranks_ ? ranks_->sharing(device, job_.parallel() ? &*job_.parallel() : nullptr) : nullptr;
}

std::unique_ptr<parallel::ModelStage> Trainer::model_stage(const gpu::DevicePtr& device) {
  const Options& given = *job_.parallel();
  if (ranks_->is_elastic())
    fail(Code::unsupported,
         "parallel: a run whose model is cut into stages cannot be elastic: every stage "
         "is needed");
  if (given.boolean("sync_batch_norm"))
    fail(Code::unsupported,
         "parallel: sync_batch_norm takes the moments of a whole batch at once, but "
         "stages of a model have micro-batches: leave it out, or use group_norm");
  if (given.string("compression") != "none")
    fail(Code::unsupported,
         "parallel: 'compression' is not supported when the model is cut into stages: "
         "leave it out");
  return ranks_->model_stage(
      device, {static_cast<int>(given.integer("micro_batches")),
               parallel::schedule_named(given.string("schedule")), given.strings("stages"),
               given.number("bucket_mb"), given.string("partition") == "measured"});
}

// Limits the pipeline to this rank's data, and to the files that this run may write.
Json Trainer::pipeline_spec(Json of) const {
  of = part_of_ranks(std::move(of), ranks_.get());
  if (membership_) of = membership_->part(std::move(of));
  return only_looks(start_) ? pipeline::without_side_files(std::move(of)) : of;
}

Json Trainer::pipeline_stats() const {
  check_whole();
  Json stats = supply_->pipeline().stats();
  const ReservoirStats of = learner_->reservoir();
  if (of.capacity)
    stats["device_echo"] = {
        {"capacity", of.capacity}, {"uploaded", of.uploaded}, {"reused", of.reused}};
  if (ranks_)
    stats["ranks"] = {{"rank", ranks_->rank()},
                      {"size", ranks_->size()},
                      {"steps", steps_here_},
                      {"bytes", ranks_->bytes()}};
  if (membership_)
    stats["worker"] = {{"steps", steps_here_}, {"bytes", learner_->exchanged_bytes()}};
  return stats;
}

void Trainer::set_hyperparameter(const std::string& name, double value) {
  if (membership_ && name == "weight_decay" &&
      algorithm_of(*job_.parallel()) == Algorithm::downpour)
    fail(Code::invalid_argument,
         "weight_decay of a parameter server's worker cannot be set: the servers apply their own "
         "(parallel.server_weight_decay)");
  const Change change{learner().steps(), name, value};
  if (ranks_)
    ranks_->check_said_by_all(
        cat(name, " to ", Json(value).dump(), " from step ", change.step + 1, " on"));
  learner_->set_hyperparameter(name, value, change.step);
  changes_.push_back(change);
}

void Trainer::set_again() {
  for (const Change& change : changes_)
    learner_->set_hyperparameter(change.hyperparameter, change.value, change.step);
}

bool Trainer::reaches_target() const {
  if (!job_.evaluation()) return false;
  const EvalMetrics& latest = progress_.evaluation().metrics;
  const double accuracy = job_.evaluation()->number("target_accuracy");
  const double loss = job_.evaluation()->number("target_loss");
  return (accuracy > 0 && latest.accuracy >= accuracy) || (loss > 0 && latest.loss < loss);
}

bool Trainer::leads() const {
  return membership_ ? membership_->leads() : !ranks_ || ranks_->leads();
}

bool Trainer::is_stopping() const {
  return ranks_ ? agreed_.stops : stop_.load() || learner_->told_to_end();
}

bool Trainer::time_is_over() const {
  const double limit = job_.train().number("seconds");
  return limit > 0 && progress_.seconds() >= limit;
}

Milestone Trainer::milestone() const {
  return {learner_->steps(), progress_.epoch(), progress_.epoch_ended(), learner_->passed().fresh,
          learner_->latest_fresh()};
}

bool Trainer::finished() const {
  return is_stopping() || target_reached_ || run_ends_at(milestone(), job_.train()) ||
         (ranks_ ? agreed_.is_over : time_is_over());
}

// Waits until `from` has a batch, or until the run is stopped. One rank alone must not leave a call
// that all of them make.
void Trainer::await_batch(pipeline::Pipeline& from) const {
  if (!wait_for_data(from, [&] { return stop_ && !ranks_ ? 0 : kPatience; }))
    fail(Code::cancelled, "the run was stopped before its pipeline gave a batch");
}

Learner& Trainer::shaped_learner() {
  if (learner().trainable() == 0) {
    // The samples that a budget measures are read at the first wait, which a stop can end.
    pipeline::Pipeline one(pipeline::without_side_files(pipeline_spec(job_.pipeline())), {},
                           /*defers=*/true, pipeline::Pipeline::Budget::at_start);
    pipeline::Item batch;
    await_batch(one);
    if (one.next(batch) != pipeline::Pipeline::Next::item)
      fail(Code::state, "the job's pipeline gave no batch to take shapes from: ", one.why_empty());
    learner_->shape(batch);
  }
  return *learner_;
}

Json Trainer::profile(int steps) {
  if (!is_trial(start_))
    fail(Code::state,
         "a profile uses up a batch and makes steps, which this run would lack: profile "
         "in a trial (ETR_START_TRIAL)");
  check_whole();
  pipeline::Item batch;
  await_batch(supply_->pipeline());
  if (supply_->pipeline().next(batch) != pipeline::Pipeline::Next::item)
    fail(Code::state,
         "the job's pipeline gave no batch to profile with: ", supply_->pipeline().why_empty());
  return learner_->profile(batch, steps);
}

// Returns whether train_one() would not block, after at most `left` seconds. With ranks: whether it
// would block on none of them, and none wants to end the run.
bool Trainer::is_ready(const std::function<double()>& left) {
  const auto device_left = [&] { return std::clamp(left(), 0.0, kPatience); };
  if (!ranks_)
    return wait_for_data(supply_->pipeline(), [&] { return finished() ? 0 : left(); }) &&
           learner_->ready_within(device_left());
  const bool ready = supply_->wait(kPatience) && learner_->ready_within(kPatience);
  agreed_ = ranks_->agree(Ranks::Outlook{stop_.load(), time_is_over(), !ready});
  return !agreed_.waits && !agreed_.stops && !agreed_.is_over && !agreed_.yields;
}

// Workers: returns whether the target is reached, or whether the run that the first one was to
// resume is complete, so that nobody begins.
bool Trainer::ends_all() const {
  const bool was_complete = start_ == Start::resume && !warm_ && !is_stopping();
  return target_reached_ || (membership_ && leads() && was_complete);
}

// A stop ends a worker's wait for others, and so does the end of the run before the worker has
// begun.
void Trainer::go_on(const std::function<double()>& left) try {
  const bool ready = is_ready(left);
  if (!agreed_.yields && ready) train_one();
} catch (const Error& error) {
  if (error.code() != Code::cancelled || !membership_ || !is_stopping()) throw;
}

void Trainer::train_one() {
  pipeline::Item batch;
  const auto changes_plan = [this](const pipeline::Item& of) { return learner_->changes_plan(of); };
  if (!supply_->next(batch, learner_->model().inputs()[0], changes_plan)) {
    if (!epoch_gave_batch_)
      fail(Code::invalid_argument, "epoch ", progress_.epoch() + 1,
           " gave no batch: ", supply_->pipeline().why_empty(),
           " (set drop_remainder to false in the batch stage to train on fewer)");
    progress_.end_epoch();
    epoch_start_ = {progress_.epoch(), learner_->steps()};
    resumed_at_.reset();
    epoch_gave_batch_ = false;
    return;
  }
  epoch_gave_batch_ = true;
  // In the first step the driver compiles the kernels. That takes many seconds with some drivers,
  // and should count neither for the run's speed nor for the device's idle share.
  if (!warm_) progress_.pause_clock();
  if (noise_due()) {
    take_metrics(/*wait_all=*/true);  // the steps in flight are training, the measurement is not
    progress_.pause_clock();
    if (const auto measured = learner_->measure_noise(batch))
      noise_[learner_->steps() + 1] = *measured;
    if (warm_) progress_.resume_clock();
  }
  learner_->step(batch, supply_->counts(), supply_->plan_changes());
  ++steps_here_;
  take_metrics(/*wait_all=*/!warm_);
  warm_ = true;
  progress_.resume_clock();
}

// Measured before the step with that number, on its batch: that costs no extra samples, and a
// resumed run measures on the same ones.
bool Trainer::noise_due() const {
  const auto every = static_cast<uint64_t>(job_.train().integer("noise_scale_every"));
  return every > 0 && (learner_->steps() + 1) % every == 0;
}

// Repeats until there are none: a failure is thrown only once the results before it have been
// taken.
void Trainer::take_metrics(bool wait_all) {
  for (auto taken = learner_->take_metrics(wait_all); !taken.empty();
       taken = learner_->take_metrics(wait_all))
    for (StepMetrics& metrics : taken) {
      if (const auto of = noise_.extract(metrics.step)) metrics.noise = of.mapped();
      progress_.count(metrics, /*timed=*/warm_);
      if (folder_) write_step(*folder_, metrics, progress_);
    }
}

bool Trainer::evaluation_due() const {
  if (!job_.evaluation() || (membership_ && !leads()) ||
      evaluation_tried_step_ == learner_->steps() || learner_->steps() == 0 || is_stopping())
    return false;
  return evaluation_falls_on(milestone(), *job_.evaluation()) || finished();
}

// Returns whether this trainer, or the first rank's, writes checkpoints.
bool Trainer::saves() const {
  return !only_looks(start_) && job_.output_dir().value_or("") != "" && (!membership_ || leads());
}

bool Trainer::checkpoint_due() const {
  if (!saves() || saved_ == now() || learner_->steps() == 0) return false;
  // If a run was resumed at an epoch's last step, only that end is new, and it will come again.
  if (learner_->trainable() == 0) return false;
  if (!writes_checkpoints(job_.output())) return false;
  return checkpoint_falls_on(milestone(), job_.output()) || finished();
}

uint64_t Trainer::planned_end() {
  // Asking for the length may list the source, so it is done once an epoch, not at every event.
  if (job_.train().integer("epochs") && length_epoch_ != progress_.epoch()) {
    epoch_length_ = supply_->pipeline().length();
    length_epoch_ = progress_.epoch();
  }
  if (resumed_at_) epoch_start_ = epoch_start(*std::exchange(resumed_at_, {}), epoch_length_);
  const uint64_t end = total_steps(job_.train(), epoch_length_, epoch_start_,
                                   steps_to_fresh(job_.train(), milestone()));
  // the run may already have been complete
  return end ? std::max<uint64_t>(end, learner_->steps()) : 0;
}

Event Trainer::make_event(EventKind kind) {
  Event event;
  event.kind = kind;
  event.step = learner_->steps();
  event.total_steps = planned_end();
  progress_.fill(event);
  event.bad_records = supply_->pipeline().bad_record_count();
  event.target_reached = target_reached_;
  return event;
}

void Trainer::pause() {
  learner().wait();
  progress_.pause_clock();
}

EvalMetrics Trainer::evaluate() {
  check_whole();
  if (!job_.evaluation()) fail(Code::state, "this job has no evaluation section");
  pause();
  std::optional<pipeline::Pipeline> pipeline;
  const auto open_pipeline = [&] {
    const Json& spec = job_.evaluation_pipeline();
    Json part = membership_ ? spec : pipeline_spec(spec);
    if (ranks_) set_option(part, pipeline::pipeline_schema(), "drop_remainder", false);
    // The samples that the budget measures are read at the first wait, which a stop can end.
    pipeline.emplace(part, pipeline::MapFunctions{}, false, pipeline::Pipeline::Budget::at_start);
  };
  EvalProgress progress = on_evaluation_;  // a copy, since the function may replace itself
  // Ranks that share the model's tensors compute each batch together, so none of them may stop
  // midway.
  const bool together = ranks_ && ranks_->sharers() > 1;
  if (together && progress)
    progress = [told = progress](int64_t done, int64_t batches) {
      told(done, batches);
      return true;
    };
  const auto evaluate_own = [&](const std::atomic<bool>* stop) {
    auto input = in_evaluation([&] {
      if (!kept_evaluation_.complete()) open_pipeline();
      return pipeline ? EvaluationInput(*pipeline, progress, stop, &kept_evaluation_)
                      : EvaluationInput(kept_evaluation_, progress, stop);
    });
    return learner_->evaluate(input, /*is_part=*/ranks_ != nullptr);
  };
  if (!ranks_) {
    learner_->average_states();
    return evaluate_own(&stop_);
  }
  // Making learners is collective. A rank without a sample to evaluate uses one to train on.
  if (start_ != Start::evaluate) shaped_learner();
  learner_->average_states();
  const EvalMetrics all = ranks_->evaluate([&] {
    const EvalMetrics own = evaluate_own(together ? nullptr : &stop_);
    if (own.samples == 0) shaped_learner();
    return own;
  });
  if (all.samples == 0)
    fail(Code::invalid_argument,
         "evaluation: the pipeline gave no samples to any rank: ", pipeline->why_empty());
  return all;
}

std::optional<Event> Trainer::evaluation_event() {
  evaluation_tried_step_ = learner_->steps();
  try {
    progress_.keep({learner_->steps(), evaluate()});
  } catch (const Error& error) {
    if (error.code() != Code::cancelled) throw;
    return std::nullopt;
  }
  target_reached_ = target_reached_ || reaches_target();
  Event event = make_event(EventKind::evaluation);
  if (folder_) write_evaluation(*folder_, event);
  return event;
}

Event Trainer::next_event(double seconds) {
  if (start_ == Start::evaluate)
    fail(Code::state,
         "this trainer was made to evaluate a checkpoint; resume the run to continue "
         "training");
  if (ended_) return make_event(EventKind::end);
  if (failure_) std::rethrow_exception(failure_);
  try {
    return advance_or_recover(seconds);
  } catch (const std::exception& error) {
    failure_ = std::current_exception();
    folder_.reset();
    if (ranks_) ranks_->abort(error.what());
    throw;
  }
}

// Ranks find out one after another that a step was not finite, and the first one ends the group. To
// the others that looks like a lost rank, unless they look for what they were about to find.
std::optional<Error> Trainer::own_failure(const Error& error) {
  if (error.code() != Code::rank_lost || !learner_) return std::nullopt;
  constexpr double kOwnSteps = 5;  // seconds until they are done on a busy machine
  learner_->wait_for_steps(kOwnSteps);
  try {
    take_metrics(/*wait_all=*/false);
  } catch (const Error& own) {
    if (own.code() == Code::not_finite) return own;
  }
  return std::nullopt;
}

void Trainer::abort(const std::string& reason) {
  if (!ranks_) return;
  ranks_->abort(reason);
  learner_->abort(reason);
}

bool Trainer::let_go() {
  if (ranks_ || membership_) return false;
  folder_.reset();
  supply_.reset();
  return true;
}

// Takes the place of is_ready(), in which the other ranks wait once this one has reported progress.
void Trainer::yield() {
  agreed_ = ranks_->agree(Ranks::Outlook{.stops = stop_.load(), .yields = true});
}

Event Trainer::advance_or_recover(double seconds) {
  while (true) try {
      return advance(seconds);
    } catch (const Error& error) {
      if (const auto own = own_failure(error)) throw *own;
      if (can_regroup(error))
        go_on_without(error);
      else if (error.code() == Code::device_lost)
        recover(error);
      else
        throw;
    }
}

Event Trainer::advance(double seconds) {
  progress_.resume_clock();
  const int64_t called_ns = now_ns();
  if (seconds <= 0) seconds = job_.train().number("progress_every");
  const auto left = [&] { return seconds - seconds_between(called_ns, now_ns()); };
  while (true) {
    // A stalled source or a long step delays neither progress events nor stop(). An evaluation is
    // due here if the run was resumed after its evaluation had been stopped.
    if (!progress_.epoch_ended() && !finished() && !evaluation_due()) {
      go_on(left);
      if (agreed_.yields) return make_event(EventKind::progress);
    }
    // In this order: a limit of seconds may pass between the two, and the last evaluation is due.
    const bool ends = finished(), evaluates = evaluation_due();
    if (evaluates || checkpoint_due() || ends) {
      take_metrics(/*wait_all=*/true);
      progress_.pause_clock();
    }
    if (ends) learner_->settle();
    if (evaluates)
      if (const auto event = evaluation_event()) return *event;
    if (checkpoint_due()) {  // even if stop() has ended the evaluation
      const std::string path = save();
      Event event = make_event(EventKind::checkpoint);
      event.path = path;
      return event;
    }
    if (!ends && admit_newcomers()) continue;  // from the start of the new group, as they do
    progress_.begin_epoch();
    if (ends) {
      learner_->finish(ends_all());
      if (folder_) folder_->check_in_place();
      if (ranks_) ranks_->end();
      ended_ = true;
      folder_.reset();
      return make_event(EventKind::end);
    }
    progress_.resume_clock();  // an evaluation that was stopped gives no event
    if (left() <= 0) return make_event(EventKind::progress);
  }
}

}  // namespace etr::train
