// Saving and continuing a run: after an interruption, with a new device, or with other ranks.
#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/log.h"
#include "core/most_ranks.h"
#include "core/text.h"
#include "train/trainer.h"

namespace etr::train {
namespace {

constexpr const char* kLearnerState = "learner.json";

// How often one run recovers from a lost device. A device that is lost each time will not recover.
constexpr int kMostRecoveries = 3;

// The most samples in a batch of a pipeline; 0: its stages do not say.
int64_t most_in_batch(const Json& pipeline) {
  int64_t most = 0;
  for (const Json& stage : pipeline.value("stages", Json::array())) {
    if (!stage.is_object() || !stage.contains("size")) continue;
    const std::string name = stage.value("stage", "");
    if ((name == "batch" || name == "padded_batch") && stage["size"].is_number_integer())
      most = std::max(most, stage["size"].get<int64_t>());
  }
  return most;
}

// Plans are made for the most rows that a step had, so a checkpoint that states too many would take
// the memory of the device, or of the host, before the first step.
void check_rows(const checkpoint::Files& files, const std::string& origin, const Json& pipeline) {
  constexpr int64_t kRoom = 16;  // rows are rounded up to micro-batches, and stages may change
  const int64_t most = most_in_batch(pipeline);
  const Json state = checkpoint::json_of(files, kLearnerState, origin);
  if (most == 0 || !state.is_object() || !state.contains("rows")) return;
  for (const auto& [fields, rows] : state["rows"].items())
    if (rows.is_number() && rows.get<double>() > static_cast<double>(kRoom * most))
      fail(Code::corrupt_data, origin, ": '", kLearnerState, "' says that steps on '", fields,
           "' had ", rows.dump(), " rows, and the job's batches have at most ", most,
           " samples; the checkpoint is damaged, or of another job");
}

}  // namespace

// Collective. Returns the checkpoint's path.
std::string Trainer::save() {
  take_metrics(/*wait_all=*/true);
  checkpoint::Files files = supply_->positions();
  learner_->average_states();
  learner_->forget_residuals();  // because a run that resumes from here has no residuals
  saved_ = now();
  has_saved_ = true;
  const bool together = learner_->saves_together();
  if (together) learner_->save(files);
  std::string path;
  work_apart([&] {
    if (!folder_) return;
    if (!together) learner_->save(files);
    path = write_checkpoint(files);
  });
  return path;
}

// Does what the other ranks do not do, or not in the same time.
void Trainer::work_apart(const std::function<void()>& work) {
  if (ranks_)
    ranks_->work_apart(work);
  else
    work();
}

std::string Trainer::write_checkpoint(checkpoint::Files& files) {
  Json state = progress_.json();
  if (ranks_) state["ranks"] = ranks_->parts();
  checkpoint::put_text(files, kTrainerState, state.dump());
  checkpoint::put_text(files, "job.json", job_.json().dump(1));
  return folder_->write_checkpoint(learner_->steps(), files);
}

// Returns the newest checkpoint of the folder that this rank, or the first one, has.
checkpoint::Loaded Trainer::newest_checkpoint() {
  return ranks_ ? ranks_->share([this] { return own_checkpoint(); }) : own_checkpoint();
}

checkpoint::Loaded Trainer::own_checkpoint() const {
  if (!folder_) fail(Code::state, "there is no checkpoint: this job's output.dir is empty");
  auto loaded = folder_->newest();
  if (!loaded)
    fail(Code::not_found, "there is no checkpoint in '", *job_.output_dir(),
         "/checkpoints' yet; train first, or let output.dir name the folder of another run");
  check_rows(loaded->files, cat("the checkpoint '", loaded->path, "'"), job_.pipeline());
  return *std::move(loaded);
}

void Trainer::load() {
  const checkpoint::Loaded loaded = newest_checkpoint();
  const std::string origin = cat("the checkpoint '", loaded.path, "'");
  const Json state = checkpoint::json_of(loaded.files, kTrainerState, origin);
  const JsonMembers members(state, cat(origin, ": '", kTrainerState, "' is damaged"),
                            Code::corrupt_data);
  progress_.load(members);
  const int ranks = members.has("ranks") ? static_cast<int>(members.whole("ranks", kMostRanks)) : 1;
  learner_->load(loaded.files, origin, {0, progress_.fresh(), progress_.examples()});
  set_again();
  work_apart([&] {  // lists the data
    if (membership_)
      supply_->restore_worker(loaded.files, membership_->parts(), origin);
    else
      supply_->restore(loaded.files, ranks, origin);
  });
  resumed_at_ = milestone();
  evaluation_tried_step_ = progress_.evaluation().step;
  const bool evaluated = progress_.evaluation().step == learner_->steps();
  target_reached_ = evaluated && reaches_target();
  epoch_gave_batch_ = true;  // perhaps before the interruption
  saved_ = now();
  if (folder_) folder_->go_on_after(learner_->steps(), evaluated);
}

// Repeats everything since the newest checkpoint, with the same bits.
void Trainer::recover(const Error& lost) {
  if (ranks_ || membership_) throw Error(lost);  // the others cannot go back with it
  if (learner_->device()->options().host)
    fail(Code::device_lost, lost.what(),
         " (the program's own device: only the program can open it again)");
  const auto loaded = folder_ ? folder_->newest() : std::nullopt;
  if (!loaded || ++recoveries_ > kMostRecoveries)
    fail(Code::device_lost, lost.what(),
         loaded ? cat(" (for the ", recoveries_, "th time in this run)")
                : std::string(" (the run has no checkpoint yet from which it could continue)"));
  log_line(LogLevel::warning,
           cat("step ", learner_->steps(), ": ", lost.what(),
               "; the run opens the device again and continues from '", loaded->path, "'"));
  const gpu::DeviceOptions options = learner_->device()->options();
  kernels_.reset();
  renew([&] {
    open(std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(options)));
    load();
    warm_ = false;
    length_epoch_.reset();
  });
}

// Replaces the learner and the supply by those that `begin` makes. If it fails, there are none:
// half of a new beginning must not train.
void Trainer::renew(const std::function<void()>& begin) {
  learner_.reset();
  supply_.reset();
  try {
    begin();
  } catch (...) {
    learner_.reset();
    supply_.reset();
    throw;
  }
}

bool Trainer::can_regroup(const Error& error) const {
  return ranks_ && ranks_->is_elastic() && error.code() == Code::rank_lost;
}

// The remaining ranks continue from the newest checkpoint, or from the beginning if there is none
// yet. More of them may be lost before all have started again.
void Trainer::go_on_without(const Error& lost) {
  log_line(LogLevel::warning, cat(lost.what(), "; the remaining ranks form a group of their own"));
  for (std::vector<int> missing = ranks_->missing(lost);;) try {
      return renew([&] {
        ranks_->regroup(missing);
        begin_again();
      });
    } catch (const Error& again) {
      if (!can_regroup(again) || !ranks_->has_group()) throw;
      missing = ranks_->missing(again);
    }
}

// At the end of an epoch: all continue together from its checkpoint.
bool Trainer::admit_newcomers() {
  if (!ranks_ || !ranks_->is_elastic() || !progress_.epoch_ended() || ranks_->newcomers() == 0)
    return false;
  if (saved_ != now()) {
    shaped_learner();
    save();
  }
  renew([&] {
    ranks_->admit();
    begin_again();
  });
  return true;
}

void Trainer::begin_again() {
  open(kernels_);
  open_folder();
  warm_ = false;
  kept_evaluation_.forget();  // a new group divides the data anew
  length_epoch_.reset();
  agreed_ = {};
  begin_as_others();
}

// Collective over a new group. The old first rank may have ended before it wrote a checkpoint.
void Trainer::begin_as_others() {
  work_apart([&] { has_saved_ = has_saved_ && folder_ && folder_->newest(); });
  has_saved_ = ranks_->first_says(has_saved_);
  if (has_saved_) {
    load();
  } else {
    progress_ = {};
    epoch_start_ = {};
    resumed_at_.reset();
    saved_ = {};
    evaluation_tried_step_ = 0;
    epoch_gave_batch_ = target_reached_ = false;
    if (folder_) folder_->go_on_after(0, false);
  }
  log_group();
}

void Trainer::log_group() const {
  log_line(LogLevel::warning,
           cat(ranks_->size() == 1 ? "1 rank goes" : cat(ranks_->size(), " ranks go"),
               " on from step ", learner_->steps(), "; this is rank ", ranks_->rank()));
}

// Opens the folder on the first rank. An earlier first rank may have had it: what that wrote
// belongs to this run, unless it has yet to replace an earlier run.
void Trainer::open_folder() {
  if (folder_ || !ranks_->leads()) return;
  const Start start = !has_saved_ && start_ == Start::overwrite ? start_ : Start::resume;
  folder_ =
      std::make_unique<RunFolder>(*job_.output_dir(), start, job_.output().boolean("tensorboard"));
}

}  // namespace etr::train
