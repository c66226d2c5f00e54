#include "train/trainer.h"

#include <algorithm>
#include <cmath>

#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "core/parse_json.h"
#include "core/text.h"
#include "train/patience.h"

namespace etr::train {
namespace {

constexpr const char* kTrainerState = "trainer.json";

// Of the rank's pipeline.
std::string position_file(int rank) {
  return rank == 0 ? "pipeline.json" : cat("pipeline-rank-", rank, ".json");
}
constexpr int kMostRecoveries =
    3;  // of a lost device in one run: what is lost each time will not heal

int64_t planned_steps(const Job& job) {
  const int64_t planned = job.train().integer("planned_steps");
  return planned ? planned : job.train().integer("steps");
}

LearnerSpec learner_spec(const Job& job) {
  return {job.model(), job.optimizer(), job.schedule(), job.seed(), planned_steps(job)};
}

// For what only looks: no log of decisions, no list of bad records, no quarantine.
Json without_side_files(Json pipeline) {
  pipeline.erase("bad_records_file");
  for (const char* key : {"on_error", "on_error_in"}) {
    auto text = pipeline.value(key, std::string());
    const std::string writing = "quarantine";
    for (size_t at = 0; (at = text.find(writing, at)) != std::string::npos;)
      text.replace(at, writing.size(), "skip");
    if (!text.empty()) pipeline[key] = text;
  }
  for (Json& stage : pipeline["stages"])
    if (stage["stage"] == "echo") stage.erase("log");
  return pipeline;
}

}  // namespace

Trainer::Trainer(std::shared_ptr<gpu::Kernels> kernels, const Job& job, Start start,
                 std::unique_ptr<Ranks> ranks)
    : job_(job),
      ranks_(ranks                   ? std::move(ranks)
             : start == Start::trial ? nullptr
                                     : join_ranks(job)),
      start_(start) {
  try {
    begin(std::move(kernels));
  } catch (const std::exception& error) {
    if (ranks_) ranks_->abort(error.what());
    throw;
  }
}

void Trainer::begin(std::shared_ptr<gpu::Kernels> kernels) {
  open(std::move(kernels));
  const Options& train = job_.train();
  if (train.integer("epochs") == 0 && train.integer("steps") == 0 && train.number("seconds") == 0)
    fail(Code::invalid_argument,
         "train: set 'epochs', 'steps' or 'seconds', or the run would never end");
  const auto directory = job_.output_dir();
  const bool leads = !ranks_ || ranks_->leads();
  if (leads && !directory && (start_ == Start::fresh || start_ == Start::overwrite))
    log_line(LogLevel::warning,
             "this run saves nothing, no checkpoint and no metrics: the job has no output.dir "
             "(\"\" says that this is meant)");
  if (leads && directory.value_or("") != "" && start_ != Start::trial)
    folder_ = std::make_unique<RunFolder>(*directory, start_, job_.output().boolean("tensorboard"));
  if (start_ == Start::resume) load();
  if (start_ == Start::evaluate) {
    const checkpoint::Loaded loaded = newest_checkpoint();
    learner_->load(loaded.files, cat("the checkpoint '", loaded.path, "'"));
  }
}

Trainer::~Trainer() = default;

void Trainer::open(std::shared_ptr<gpu::Kernels> kernels) {
  auto exchange = ranks_ ? data_parallel(kernels->device()) : nullptr;
  learner_.emplace(std::move(kernels), learner_spec(job_), std::move(exchange));
  pipeline_.emplace(pipeline_spec(job_.pipeline()), pipeline::MapFunctions{}, /*defers=*/true);
  learner_->expect_views(pipeline_->view_samples());
}

std::unique_ptr<parallel::DataParallel> Trainer::data_parallel(const gpu::DevicePtr& device) {
  parallel::DataParallelOptions options;
  if (job_.parallel()) options.bucket_mb = job_.parallel()->number("bucket_mb");
  return ranks_->data_parallel(device, options);
}

// For this rank, and with what this run may write.
Json Trainer::pipeline_spec(Json of) const {
  if (ranks_) {
    of["rank"] = ranks_->rank();
    of["world"] = ranks_->size();
  }
  return only_looks() ? without_side_files(std::move(of)) : of;
}

// Everything since the newest checkpoint is repeated, bit for bit.
void Trainer::recover(const Error& lost) {
  if (ranks_) throw Error(lost);  // the others cannot go back with it
  if (learner_->device()->options().host)
    fail(Code::device_lost, lost.what(),
         " (the program's own device: only the program can open it again)");
  const auto loaded = folder_ ? folder_->newest() : std::nullopt;
  if (!loaded || ++recoveries_ > kMostRecoveries)
    fail(Code::device_lost, lost.what(),
         loaded ? cat(" (for the ", recoveries_, "th time in this run)")
                : std::string(" (the run has no checkpoint yet to go on from)"));
  log_line(LogLevel::warning,
           cat("step ", learner_->steps(), ": ", lost.what(),
               "; the run opens the device again and goes on from '", loaded->path, "'"));
  const gpu::DeviceOptions options = learner_->device()->options();
  learner_.reset();
  pipeline_.reset();
  open(std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(options)));
  load();
  warm_ = false;
  length_epoch_.reset();
  loss_sum_ = accuracy_sum_ = 0;
  steps_since_ = examples_since_ = 0;
  clock_start_ns_ = 0;
  event_seconds_ = seconds_before_;
}

Json Trainer::pipeline_stats() const {
  Json stats = pipeline_->stats();
  const ReservoirStats of = learner_->reservoir();
  if (of.capacity)
    stats["device_echo"] = {
        {"capacity", of.capacity}, {"uploaded", of.uploaded}, {"reused", of.reused}};
  return stats;
}

// That of the folder which this or the first rank has.
checkpoint::Loaded Trainer::newest_checkpoint() {
  return ranks_ ? ranks_->share([this] { return own_checkpoint(); }) : own_checkpoint();
}

checkpoint::Loaded Trainer::own_checkpoint() const {
  if (!folder_) fail(Code::state, "there is no checkpoint: this job's output.dir is empty");
  auto loaded = folder_->newest();
  if (!loaded)
    fail(Code::not_found, "there is no checkpoint in '", *job_.output_dir(),
         "/checkpoints' yet; train first, or let output.dir name the folder of another run");
  return *std::move(loaded);
}

void Trainer::load() {
  const checkpoint::Loaded loaded = newest_checkpoint();
  const std::string origin = cat("the checkpoint '", loaded.path, "'");
  const Json state = checkpoint::json_of(loaded.files, kTrainerState, origin);
  try {
    load_progress(state);
    load_evaluation(state.value("evaluation", Json()));
  } catch (const nlohmann::json::exception& error) {
    fail(Code::corrupt_data, origin, ": '", kTrainerState, "' is damaged: ", json_problem(error));
  }
  learner_->load(loaded.files, origin);
  restore_position(loaded.files, state, origin);
  const bool evaluated = last_evaluation_.step == learner_->steps();
  target_reached_ = evaluated && reaches_target();
  epoch_gave_batch_ = true;  // perhaps before the interruption
  // An evaluation that is made up for is saved, too.
  saved_step_ = evaluation_due() ? 0 : learner_->steps();
  if (folder_) folder_->go_on_after(learner_->steps(), evaluated);
}

// Each rank goes on with its own part of the data. With another number of ranks the run can go on from an epoch's end.
void Trainer::restore_position(const checkpoint::Files& files, const Json& state,
                               const std::string& origin) {
  const int rank = ranks_ ? ranks_->rank() : 0, size = ranks_ ? ranks_->size() : 1;
  const int before = state.value("ranks", 1);
  const Json position =
      checkpoint::json_of(files, position_file(before == size ? rank : 0), origin);
  if (before != size && position.value("delivered", 1) != 0)
    fail(Code::unsupported, origin, " was written within an epoch by ", counted(before, "rank"),
         ", and this run has ", size,
         ": resume it with as many, or from a checkpoint at an epoch's end");
  pipeline_->restore(position);
}

void Trainer::load_progress(const Json& state) {
  epoch_ = state.at("epoch").get<uint64_t>();
  epoch_ended_ = state.value("epoch_ended", false);  // earlier versions do not say
  examples_ = state.at("examples").get<uint64_t>();
  fresh_ = state.at("fresh").get<uint64_t>();
  echoed_ = state.at("echoed").get<uint64_t>();
  seconds_before_ = state.at("seconds").get<double>();
  busy_seconds_ = state.at("busy_seconds").get<double>();
}

// Of the latest evaluation, so that none is made twice. Checkpoints of earlier versions say nothing of it.
void Trainer::load_evaluation(const Json& state) {
  last_evaluation_ = {};
  evaluation_tried_step_ = 0;
  if (state.is_null()) return;
  const auto number = [&](const char* key) {  // null: it was not finite
    const Json& value = state.at(key);
    return value.is_null() ? std::nan("") : value.get<double>();
  };
  last_evaluation_ = {state.at("step").get<uint64_t>(),
                      {state.at("samples").get<int64_t>(), number("loss"), number("accuracy")}};
  evaluation_tried_step_ = last_evaluation_.step;
}

bool Trainer::reaches_target() const {
  const double target = job_.evaluation() ? job_.evaluation()->number("target_accuracy") : 0;
  return target > 0 && last_evaluation_.metrics.accuracy >= target;
}

double Trainer::training_seconds() const {
  return seconds_before_ + (clock_start_ns_ ? seconds_between(clock_start_ns_, now_ns()) : 0);
}

void Trainer::pause_clock() {
  seconds_before_ = training_seconds();
  clock_start_ns_ = 0;
}

void Trainer::resume_clock() {
  if (clock_start_ns_ == 0) clock_start_ns_ = now_ns();
}

bool Trainer::is_stopping() const { return ranks_ ? agreed_.stops : stop_.load(); }

bool Trainer::time_is_over() const {
  const double limit = job_.train().number("seconds");
  return limit > 0 && training_seconds() >= limit;
}

bool Trainer::finished() const {
  const Options& train = job_.train();
  const auto reached = [](int64_t limit, uint64_t now) {
    return limit > 0 && now >= static_cast<uint64_t>(limit);
  };
  return is_stopping() || target_reached_ || reached(train.integer("epochs"), epoch_) ||
         reached(train.integer("steps"), learner_->steps()) ||
         (ranks_ ? agreed_.is_over : time_is_over());
}

Learner& Trainer::shaped_learner() {
  if (learner_->trainable() == 0) {
    pipeline::Pipeline one(without_side_files(pipeline_spec(job_.pipeline())), {}, /*defers=*/true);
    pipeline::Item batch;
    if (one.next(batch) != pipeline::Pipeline::Next::item)
      fail(Code::state, "the job's pipeline gave no batch to take shapes from: ", one.why_empty());
    learner_->shape(batch);
  }
  return *learner_;
}

Json Trainer::profile(int steps) {
  pipeline::Item batch;
  if (pipeline_->next(batch) != pipeline::Pipeline::Next::item)
    fail(Code::state, "the job's pipeline gave no batch to profile with: ", pipeline_->why_empty());
  return learner_->profile(batch, steps);
}

// Whether train_one() would not block, after at most `left` seconds. With ranks: whether none of them would, and none wants to
// end the run.
bool Trainer::is_ready(const std::function<double()>& left) {
  const auto device_left = [&] { return std::clamp(left(), 0.0, kPatience); };
  if (!ranks_)
    return wait_for_data(*pipeline_, [&] { return finished() ? 0 : left(); }) &&
           learner_->ready_within(device_left());
  const bool ready = pipeline_->wait(kPatience) && learner_->ready_within(kPatience);
  agreed_ = ranks_->agree(Ranks::Outlook{stop_.load(), time_is_over(), !ready});
  return !agreed_.waits && !agreed_.stops && !agreed_.is_over;
}

// False at the end of the epoch, which with ranks is where the first of them has no further batch.
bool Trainer::next_batch(pipeline::Item& batch) {
  bool ended = pipeline_->next(batch) == pipeline::Pipeline::Next::end_of_epoch;
  if (!ranks_) return !ended;
  Ranks::Share share{.ends_epoch = ended};
  if (!ended) {
    share.samples = learner_->rows(batch);
    share.fresh = batch.batch.size ? batch.batch.fresh : share.samples;
    share.echoed = batch.batch.size ? batch.batch.echoed : 0;
  }
  share = ranks_->agree(share);
  if (!share.ends_epoch) {
    shares_.push_back(share);
    return true;
  }
  while (!ended) ended = pipeline_->next(batch) == pipeline::Pipeline::Next::end_of_epoch;
  return false;
}

void Trainer::train_one() {
  pipeline::Item batch;
  if (!next_batch(batch)) {
    if (!epoch_gave_batch_)
      fail(Code::invalid_argument, "epoch ", epoch_ + 1, " gave no batch: ", pipeline_->why_empty(),
           " (set drop_remainder to false in the batch stage to train on fewer)");
    ++epoch_;
    epoch_ended_ = true;
    epoch_gave_batch_ = false;
    return;
  }
  epoch_gave_batch_ = true;
  // In the first step the driver compiles the kernels: many seconds on some, and nothing that a
  // run's speed or its device's idle share should be judged by.
  if (!warm_) pause_clock();
  learner_->step(batch);
  take_metrics(/*wait_all=*/!warm_);
  warm_ = true;
  resume_clock();
}

// Until there are none: a failure comes when the results before it have been taken.
void Trainer::take_metrics(bool wait_all) {
  for (auto taken = learner_->take_metrics(wait_all); !taken.empty();
       taken = learner_->take_metrics(wait_all))
    for (StepMetrics& metrics : taken) {
      if (ranks_) {
        const Ranks::Share& share = shares_.front();
        metrics.samples = static_cast<int32_t>(share.samples);
        metrics.fresh = static_cast<int32_t>(share.fresh);
        metrics.echoed = static_cast<int32_t>(share.echoed);
        shares_.pop_front();
      }
      count_step(metrics);
    }
}

void Trainer::count_step(const StepMetrics& metrics) {
  examples_ += static_cast<uint64_t>(metrics.samples);
  fresh_ += static_cast<uint64_t>(metrics.fresh);
  echoed_ += static_cast<uint64_t>(metrics.echoed);
  if (warm_) busy_seconds_ += metrics.busy_seconds;
  loss_sum_ += static_cast<double>(metrics.loss);
  accuracy_sum_ += static_cast<double>(metrics.accuracy);
  examples_since_ += static_cast<uint64_t>(metrics.samples);
  learning_rate_ = static_cast<double>(metrics.learning_rate);
  ++steps_since_;
  write_step(metrics);
}

void Trainer::write_step(const StepMetrics& m) {
  const auto loss = static_cast<double>(m.loss), accuracy = static_cast<double>(m.accuracy);
  if (folder_) {
    Json row{{"kind", "step"},
             {"step", m.step},
             {"loss", loss},
             {"accuracy", accuracy},
             {"learning_rate", static_cast<double>(m.learning_rate)},
             {"seconds", training_seconds()},
             {"examples", examples_},
             {"fresh", fresh_},
             {"busy_seconds", busy_seconds_}};
    if (m.skipped) row["skipped"] = true;
    folder_->write_row(row);
    folder_->write_scalars(m.step, {{"train/loss", loss},
                                    {"train/accuracy", accuracy},
                                    {"train/learning_rate", static_cast<double>(m.learning_rate)}});
  }
}

bool Trainer::evaluation_due() const {
  if (!job_.evaluation() || evaluation_tried_step_ == learner_->steps() || learner_->steps() == 0 ||
      is_stopping())
    return false;
  const auto by_epoch = static_cast<uint64_t>(job_.evaluation()->integer("every_epochs"));
  const auto by_step = static_cast<uint64_t>(job_.evaluation()->integer("every_steps"));
  return (epoch_ended_ && by_epoch && epoch_ % by_epoch == 0) ||
         (by_step && learner_->steps() % by_step == 0) || finished();
}

// Whether this trainer, or the first rank's, writes checkpoints.
bool Trainer::saves() const { return !only_looks() && job_.output_dir().value_or("") != ""; }

bool Trainer::checkpoint_due() const {
  if (!saves() || saved_step_ == learner_->steps() || learner_->steps() == 0) return false;
  const auto by_epoch = static_cast<uint64_t>(job_.output().integer("checkpoint_every_epochs"));
  const auto by_step = static_cast<uint64_t>(job_.output().integer("checkpoint_every_steps"));
  if (!by_epoch && !by_step) return false;
  return (epoch_ended_ && by_epoch && epoch_ % by_epoch == 0) ||
         (by_step && learner_->steps() % by_step == 0) || finished();
}

// Where the run will end as far as that can be told; 0: it cannot.
uint64_t Trainer::total_steps() {
  const auto steps = static_cast<uint64_t>(job_.train().integer("steps"));
  const auto epochs = static_cast<uint64_t>(job_.train().integer("epochs"));
  if (epochs && length_epoch_ != epoch_) {  // the source may be listed for it: not at every event
    epoch_length_ = pipeline_->length();
    length_epoch_ = epoch_;
  }
  if (epoch_length_ && (!steps || epochs * *epoch_length_ < steps)) return epochs * *epoch_length_;
  return steps ? steps : static_cast<uint64_t>(planned_steps(job_));
}

Event Trainer::make_event(EventKind kind) {
  Event event;
  event.kind = kind;
  event.step = learner_->steps();
  event.epoch = epoch_;
  event.total_steps = total_steps();
  event.seconds = training_seconds();
  if (steps_since_ > 0) {
    const auto steps = static_cast<double>(steps_since_);
    means_ = {
        loss_sum_ / steps, accuracy_sum_ / steps,
        static_cast<double>(examples_since_) / std::max(event.seconds - event_seconds_, 1e-9)};
    loss_sum_ = accuracy_sum_ = 0;
    steps_since_ = examples_since_ = 0;
    event_seconds_ = event.seconds;
  }
  event.loss = means_.loss;  // an event right after another repeats its means
  event.accuracy = means_.accuracy;
  event.examples_per_second = means_.examples_per_second;
  event.learning_rate = learning_rate_;
  if (event.seconds > 0)
    event.device_wait_share = std::clamp(1 - busy_seconds_ / event.seconds, 0.0, 1.0);
  event.examples = examples_;
  event.fresh = fresh_;
  event.echoed = echoed_;
  event.bad_records = pipeline_->stats()["bad_records"].get<int64_t>();
  event.eval_loss = last_evaluation_.metrics.loss;
  event.eval_accuracy = last_evaluation_.metrics.accuracy;
  event.target_reached = target_reached_;
  return event;
}

EvalMetrics Trainer::evaluate() {
  if (!job_.evaluation()) fail(Code::state, "this job has no evaluation section");
  const Json& spec = job_.evaluation_pipeline();
  auto pipeline = in_evaluation([&] {
    // A budget's samples are read at the first wait, which a stop ends.
    Json part = pipeline_spec(spec);
    if (ranks_) part["drop_rest"] = false;
    return pipeline::Pipeline(part, {}, false, pipeline::Pipeline::Budget::at_start);
  });
  const EvalProgress progress = on_evaluation_;  // which it may replace
  learner_->average_states();
  const auto own = [&] { return learner_->evaluate(pipeline, progress, &stop_); };
  return ranks_ ? ranks_->evaluate(own) : own();
}

std::optional<Event> Trainer::evaluation_event() {
  evaluation_tried_step_ = learner_->steps();
  try {
    last_evaluation_ = {learner_->steps(), evaluate()};
  } catch (const Error& error) {
    if (error.code() != Code::cancelled) throw;
    return std::nullopt;
  }
  target_reached_ = target_reached_ || reaches_target();
  Event event = make_event(EventKind::evaluation);
  if (!folder_) return event;
  folder_->write_row({{"kind", "evaluation"},
                      {"step", event.step},
                      {"epoch", epoch_},
                      {"eval_loss", event.eval_loss},
                      {"eval_accuracy", event.eval_accuracy},
                      {"seconds", event.seconds},
                      {"examples", examples_},
                      {"fresh", fresh_},
                      {"echoed", echoed_},
                      {"device_wait_share", event.device_wait_share}});
  folder_->write_scalars(event.step, {{"eval/loss", event.eval_loss},
                                      {"eval/accuracy", event.eval_accuracy},
                                      {"device/wait_share", event.device_wait_share}});
  return event;
}

Json Trainer::state() const {
  Json state{{"epoch", epoch_},
             {"epoch_ended", epoch_ended_},
             {"examples", examples_},
             {"fresh", fresh_},
             {"echoed", echoed_},
             {"seconds", training_seconds()},
             {"busy_seconds", busy_seconds_}};
  if (ranks_) state["ranks"] = ranks_->size();
  if (const auto& [step, metrics] = last_evaluation_; step > 0)
    state["evaluation"] = {{"step", step},
                           {"samples", metrics.samples},
                           {"loss", metrics.loss},
                           {"accuracy", metrics.accuracy}};
  return state;
}

std::string Trainer::save() {
  if (!saves())
    fail(Code::state, "this trainer writes no checkpoints: ",
         start_ == Start::evaluate ? "it was made to evaluate one"
                                   : "the job's output.dir is empty, or this is a trial");
  take_metrics(/*wait_all=*/true);
  std::vector<std::string> positions{pipeline_->save().dump()};
  if (ranks_) positions = ranks_->gather(positions[0]);
  learner_->average_states();
  if (!folder_) {
    saved_step_ = learner_->steps();
    return "";
  }
  checkpoint::Files files;
  learner_->save(files);
  for (size_t rank = 0; rank < positions.size(); ++rank)
    checkpoint::put_text(files, position_file(static_cast<int>(rank)), positions[rank]);
  checkpoint::put_text(files, kTrainerState, state().dump());
  checkpoint::put_text(files, "job.json", job_.json().dump(1));
  saved_step_ = learner_->steps();
  return folder_->write_checkpoint(learner_->steps(), files);
}

Event Trainer::next_event(double seconds) {
  if (start_ == Start::evaluate)
    fail(Code::state, "this trainer was made to evaluate a checkpoint; resume the run to train on");
  if (ended_) return make_event(EventKind::end);
  try {
    return advance_or_recover(seconds);
  } catch (const std::exception& error) {
    if (folder_) folder_->let_go();
    if (ranks_) ranks_->abort(error.what());
    throw;
  }
}

Event Trainer::advance_or_recover(double seconds) {
  while (true) try {
      return advance(seconds);
    } catch (const Error& error) {
      if (error.code() != Code::device_lost) throw;
      recover(error);
    }
}

Event Trainer::advance(double seconds) {
  resume_clock();
  const int64_t called_ns = now_ns();
  if (seconds <= 0) seconds = job_.train().number("progress_every");
  const auto left = [&] { return seconds - seconds_between(called_ns, now_ns()); };
  while (true) {
    // A stalled source or a long step holds back neither progress events nor stop().
    // An evaluation is due here where the run resumes from one that was stopped.
    if (!epoch_ended_ && !finished() && !evaluation_due() && is_ready(left)) train_one();
    const bool evaluates = evaluation_due(), ends = finished();
    if (evaluates || checkpoint_due() || ends) {
      take_metrics(/*wait_all=*/true);
      pause_clock();
    }
    if (evaluates)
      if (const auto event = evaluation_event()) return *event;
    if (checkpoint_due()) {  // stop() may have ended the evaluation
      const std::string path = save();
      Event event = make_event(EventKind::checkpoint);
      event.path = path;
      return event;
    }
    epoch_ended_ = false;
    if (ends) {
      if (folder_) folder_->check_in_place();
      ended_ = true;
      if (folder_) folder_->let_go();
      return make_event(EventKind::end);
    }
    resume_clock();  // an evaluation that was stopped has no event
    if (left() <= 0) return make_event(EventKind::progress);
  }
}

}  // namespace etr::train
