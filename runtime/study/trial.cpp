#include "study/trial.h"

#include <chrono>
#include <cmath>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/platform.h"
#include "core/text.h"
#include "gpu/device.h"
#include "source_commit.h"

namespace etr::study {
namespace {

using train::Event;
using train::EventKind;

// Progress events would cut the means of the training loss at arbitrary times.
constexpr double kNoProgress = 1e6;
constexpr double kOneStep = 1e-9;
constexpr double kDivergedLoss = 10;  // times the loss of the first step

Clock clock_of(const Event& event) {
  return {static_cast<double>(event.fresh), static_cast<double>(event.examples),
          static_cast<double>(event.step), event.seconds};
}

std::string time_now() {
  return platform::utc_text(std::chrono::system_clock::now(), "%Y-%m-%dT%H:%M:%SZ");
}

// Returns the event of the first step alone, which has the loss before training.
Event first_step(train::Team& trainer) {
  Event event = trainer.next_event(kOneStep);
  while (event.kind == EventKind::progress && event.step == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // waits for the first batch
    event = trainer.next_event(kOneStep);
  }
  return event;
}

// As precise as a record keeps it: a study that goes on must decide as if it had never stopped.
CurvePoint curve_point(const Event& event, bool classifies) {
  return {clock_of(event), rounded(event.eval_loss),
          classifies ? rounded(event.eval_accuracy) : kNone, rounded(event.loss)};
}

Record blank(const Study& study, const TrialSpec& spec) {
  const Workload& workload = study.workloads()[spec.place.workload];
  Record record;
  record.workload = workload.name;
  record.condition = workload.conditions[spec.place.condition].labels;
  record.search = spec.place.search;
  record.trial = spec.place.trial;
  record.seed = spec.seed;
  record.digest = spec.digest;
  record.point = spec.point.values;
  record.unit = spec.point.unit;
  record.version = ECHOTRAIN_VERSION ECHOTRAIN_COMMIT;
  return record;
}

std::string host_name() {
  const std::string processor = platform::processor_name();
  return cat(processor.empty() ? "" : processor + ", ",
             counted(platform::usable_threads(), "thread"));
}

// Returns the names of the devices of a trial's ranks, each once. The first rank uses the program's
// device if the ranks did not each open one.
std::string names_of(const std::vector<std::string>& opened, size_t ranks,
                     const std::string& of_program) {
  std::set<std::string> names(opened.begin(), opened.end());
  if (opened.size() < ranks) names.insert(of_program);
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

Record failed_record(const Study& study, const Place& place, const Error& error) {
  Record record = blank(study, {.place = place});
  record.status = Status::failed;
  record.error = error.what();
  record.time = time_now();
  return record;
}

// A trainer that stop() can reach.
class TrialRun::Attached {
 public:
  Attached(TrialRun& run, train::Team& trainer) : run_(run) {
    const std::lock_guard lock(run_.mutex_);
    run_.trainer_ = &trainer;
    if (run_.stopped_) trainer.stop();
  }
  ~Attached() {
    const std::lock_guard lock(run_.mutex_);
    run_.trainer_ = nullptr;
  }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

 private:
  TrialRun& run_;
};

TrialRun::TrialRun(const Study& study, TrialSpec spec)
    : study_(study), spec_(std::move(spec)), workload_(study.workloads()[spec_.place.workload]) {}

void TrialRun::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  if (trainer_) trainer_->stop();
}

bool TrialRun::stopped() {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

std::optional<Record> TrialRun::run(std::shared_ptr<gpu::Kernels> kernels,
                                    const train::Team::Open& open, const Verdict& verdict) {
  const int64_t began = now_ns();
  Record record = blank(study_, spec_);
  record.device = kernels->device()->info().name;
  record.host = host_name();
  std::mutex opening;
  std::vector<std::string> opened;  // names of the devices of ranks that do not use the program's
  const train::Team::Open noted = [&](const std::string& selector) {
    std::shared_ptr<gpu::Kernels> made = open(selector);
    const std::lock_guard lock(opening);
    opened.push_back(made->device()->info().name);
    return made;
  };
  size_t ranks = 1;
  try {
    const Condition& condition = workload_.conditions[spec_.place.condition];
    const train::Job job = trial_job(workload_, condition, spec_.point.values, spec_.seed);
    if (job.parallel()) ranks = job.parallel()->strings("devices").size();
    train::Team trainer(std::move(kernels), job, train::Start::study, nullptr, noted);
    const Attached attached(*this, trainer);
    train(trainer, verdict, record);
    device_bytes_ = trainer.device_bytes();
  } catch (const Error& error) {
    if (error.code() == Code::device_lost && !stopped()) throw;
    record.status = error.code() == Code::not_finite ? Status::diverged : Status::failed;
    if (record.status == Status::failed) {
      record.error = error.what();
      error_ = error.code();
    }
  } catch (const std::bad_alloc&) {
    record.status = Status::failed;
    record.error = "the process has no more memory";
    error_ = Code::out_of_memory;
  } catch (const std::exception& error) {
    record.status = Status::failed;
    record.error = error.what();
  }
  if (stopped()) return std::nullopt;
  record.device = names_of(opened, ranks, record.device);
  record.time = time_now();
  record.elapsed = seconds_between(began, now_ns());
  return record;
}

void TrialRun::train(train::Team& trainer, const Verdict& verdict, Record& record) {
  const bool classifies = trainer.model().loss().classifies();
  Event event = first_step(trainer);
  const double first_loss = event.loss;
  record.status = Status::missed;
  for (;; event = trainer.next_event(kNoProgress)) {
    record.spent = clock_of(event);
    record.device_wait_share = event.device_wait_share;
    record.noise_scale = trainer.noise_scale();
    if (event.kind == EventKind::end) return;
    if (event.kind != EventKind::evaluation) continue;
    record.curve.push_back(curve_point(event, classifies));
    const auto ended = status_at(record.curve.back(), first_loss, verdict, record);
    if (!ended) continue;
    record.status = *ended;
    return;
  }
}

std::optional<Status> TrialRun::status_at(const CurvePoint& at, double first_loss,
                                          const Verdict& verdict, Record& record) const {
  const Goal& goal = workload_.goal;
  record.final_metric = metric_at(at, goal.accuracy);
  if (!std::isfinite(at.loss) || !std::isfinite(at.training_loss) ||
      at.training_loss > kDivergedLoss * first_loss)
    return Status::diverged;
  if (is_better(record.final_metric, record.best_metric, goal.accuracy)) {
    record.best_metric = record.final_metric;
    record.best_at = at.at;
  }
  if (!goal.reaches(record.final_metric)) return verdict(at, record.best_metric);
  record.to_target = at.at;
  return Status::reached;
}

}  // namespace etr::study
