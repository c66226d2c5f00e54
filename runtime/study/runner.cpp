#include "study/runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "core/platform.h"
#include "core/start_thread.h"
#include "core/text.h"

namespace etr::study {
namespace {

// How often a waiting caller checks for stop(), which cannot wake it, since it must work in signal
// handlers.
constexpr double kPollSeconds = 0.05;
// If so many trials in a row fail with the same error, the study itself is at fault. Later than at
// the start, it takes more of them, since a value that always fails may be drawn repeatedly.
constexpr uint64_t kFirstFailures = 3, kLaterFailures = 8;
constexpr uint64_t kThreadsOfRank = 2;  // the trainer's, and one for its pipelines or the device
constexpr uint64_t kMostOnGpu = 4;      // more would only take turns

// Returns whether an error comes from the surroundings of the study, unlike that of a job or a
// device which cannot use the values that were drawn.
bool is_of_surroundings(Code code) {
  return code == Code::io || code == Code::not_found || code == Code::corrupt_data ||
         code == Code::state;
}

std::pair<size_t, size_t> condition_of(const Place& place) {
  return {place.workload, place.condition};
}

}  // namespace

// The devices of one thread's trials, which run one after another. Each device is opened, and
// compiles its kernels, once.
class Runner::Devices {
 public:
  Devices(std::shared_ptr<gpu::Kernels> first, const train::Team::Open& open)
      : first_(std::move(first)), open_(open) {}

  const std::shared_ptr<gpu::Kernels>& first() const { return first_; }

  // For the further ranks of one trial, each with a thread of its own.
  train::Team::Open of_trial() {
    return [this, taken = std::make_shared<std::map<std::string, size_t>>()](
               const std::string& selector) {
      const std::lock_guard lock(mutex_);
      std::vector<std::shared_ptr<gpu::Kernels>>& opened = others_[selector];
      size_t& number = (*taken)[selector];  // a job may name a device twice
      if (number == opened.size()) opened.push_back(open_(selector));
      return opened[number++];
    };
  }

 private:
  const std::shared_ptr<gpu::Kernels> first_;
  const train::Team::Open& open_;
  std::mutex mutex_;
  std::map<std::string, std::vector<std::shared_ptr<gpu::Kernels>>> others_;
};

// Keeps a trial among the running ones, which stop() reaches.
class Runner::Listed {
 public:
  Listed(Runner& runner, std::shared_ptr<TrialRun> run) : runner_(runner), run_(std::move(run)) {
    const std::lock_guard lock(runner_.mutex_);
    runner_.running_.insert(run_);
  }
  ~Listed() {
    const std::lock_guard lock(runner_.mutex_);
    runner_.running_.erase(run_);
  }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;

 private:
  Runner& runner_;
  const std::shared_ptr<TrialRun> run_;
};

bool is_timed(const Study& study) {
  const auto& all = study.workloads();
  return std::any_of(all.begin(), all.end(),
                     [](const Workload& workload) { return workload.budget.clock == "seconds"; });
}

uint64_t room_on(const gpu::DeviceInfo& device, uint64_t cores, uint64_t rank_bytes,
                 uint64_t ranks) {
  const uint64_t busy = cores / (kThreadsOfRank * ranks);
  const uint64_t useful = device.kind == gpu::DeviceKind::cpu ? busy : std::min(busy, kMostOnGpu);
  const uint64_t fitting = device.memory_bytes / 2 / std::max<uint64_t>(1, rank_bytes * ranks);
  return std::max<uint64_t>(1, std::min(useful, fitting));
}

Runner::Runner(std::shared_ptr<gpu::Kernels> kernels, Study study, const RunOptions& options)
    : kernels_(std::move(kernels)),
      open_(options.open),
      cores_(options.cores.value_or(platform::usable_threads())),
      study_(std::move(study)),
      folder_(options.folder, study_, options.overwrite) {
  const uint64_t asked = options.parallel.value_or(study_.parallel());
  as_there_is_room_ = asked == 0 && !is_timed(study_);
  parallel_ = std::clamp<uint64_t>(asked, 1, study_.trials());
}

Runner::~Runner() {
  stop();
  stop_trials();
  for (std::thread& thread : threads_) thread.join();
}

std::vector<Standing>& Runner::standings(const Place& place) {
  return standings_.at(condition_of(place));
}

const std::vector<Standing>& Runner::standings(size_t workload, size_t condition) const {
  return standings_.at({workload, condition});
}

void Runner::begin() {
  const std::unique_lock lock(mutex_);
  begun_ = true;
  began_ns_ = now_ns();
  try {
    take_stock();
    if (!pending_.empty()) start_threads(parallel_);
  } catch (...) {  // half done, so it cannot be retried
    failure_ = std::current_exception();
  }
}

// Counts the trials that the folder already has; the others are pending.
void Runner::take_stock() {
  for (size_t w = 0; w < study_.workloads().size(); ++w)
    for (size_t c = 0; c < study_.workloads()[w].conditions.size(); ++c)
      standings_[{w, c}].resize(study_.workloads()[w].conditions[c].searches);
  const std::vector<Place> places = all_places(study_);
  for (const Place& place : places) ++left_[condition_of(place)];
  for (const Place& place : places) {
    const Record* record = folder_.earlier(place);
    const bool scaled_from_best =
        study_.workloads()[place.workload].conditions[place.condition].base.has_value();
    if (record && !scaled_from_best)
      finish(place, *record, /*is_new=*/false);
    else
      pending_.push_back(place);
  }
}

// Starts threads until there are `count`. The caller holds mutex_. If the system refuses, the study
// runs with fewer.
void Runner::start_threads(uint64_t count) {
  threads_.reserve(count);  // so that push_back() cannot fail with a thread in hand
  while (threads_.size() < count) try {
      const size_t slot = threads_.size();
      threads_.push_back(
          start_thread("a thread for a trial", "'parallel'", [this, slot] { work(slot); }));
      ++working_;
    } catch (const Error&) {
      if (threads_.empty()) throw;
      break;
    }
  parallel_ = threads_.size();
}

void Runner::make_use_of_room(const TrialRun& ended) {
  if (!as_there_is_room_ || ended.device_bytes() == 0 || stop_.load()) return;
  as_there_is_room_ = false;
  const uint64_t room =
      room_on(kernels_->device()->info(), cores_, ended.device_bytes(), study_.most_ranks());
  start_threads(std::min<uint64_t>(room, 1 + pending_.size()));
}

bool Runner::may_begin(const Place& place) const {
  if (one_alone_ || (taken_ > 0 && alone_.contains(place))) return false;
  const Condition& condition = study_.workloads()[place.workload].conditions[place.condition];
  return !condition.base || left_.at({place.workload, *condition.base}) == 0;
}

// A trial may run out of memory because of those beside it, and whether it fits must not depend on
// them. So it runs once more, without others. The caller holds mutex_.
bool Runner::runs_again_alone(const Place& place, std::optional<Code> error) {
  if (error != Code::out_of_memory || parallel_ == 1 || !alone_.insert(place).second) return false;
  pending_.push_back(place);
  return true;
}

// Returns the next trial that need not wait for another; none if there are no more, or the study
// ends.
std::optional<Place> Runner::take(std::unique_lock<std::mutex>& lock) {
  while (!stop_.load() && !failure_ && !pending_.empty()) {
    const auto found = std::find_if(pending_.begin(), pending_.end(),
                                    [this](const Place& place) { return may_begin(place); });
    if (found != pending_.end()) {
      const Place place = *found;
      pending_.erase(found);
      latest_ = place;
      ++taken_;
      one_alone_ = alone_.contains(place);
      return place;
    }
    changed_.wait_for(lock, clock_duration(kPollSeconds));
  }
  return std::nullopt;
}

// Each thread opens a device of its own, since submissions to one device run one after another. It
// compiles its kernels once. A device owned by the program serves all threads.
std::shared_ptr<gpu::Kernels> Runner::kernels_of(size_t slot) const {
  const gpu::DeviceOptions& options = kernels_->device()->options();
  if (slot == 0 || options.host) return kernels_;
  try {
    return open_(options.selector);
  } catch (const Error& error) {
    log_line(LogLevel::warning,
             cat("trials share a device, because another one of '", kernels_->device()->info().name,
                 "' could not be opened: ", error.what()));
    return kernels_;
  }
}

// If a trial's device was lost, the trial begins again on a new one. If that is lost, too, the
// study ends. The program's own device cannot be opened again here.
void Runner::run_on(std::optional<Devices>& devices, size_t slot, const Place& place) {
  try {
    if (!devices) devices.emplace(kernels_of(slot), open_);
    run_one(place, *devices);
  } catch (const Error& error) {
    const gpu::DeviceOptions& options = kernels_->device()->options();
    if (error.code() != Code::device_lost || options.host) throw;
    log_line(LogLevel::warning, cat("a trial begins again on a new device: ", error.what()));
    devices.reset();
    devices.emplace(open_(options.selector), open_);
    run_one(place, *devices);
  }
}

void Runner::work(size_t slot) {
  std::optional<Devices> devices;  // opened for the first trial
  std::unique_lock lock(mutex_);
  while (const auto place = take(lock)) {
    lock.unlock();
    try {
      run_on(devices, slot, *place);
      lock.lock();
    } catch (...) {
      lock.lock();
      if (!failure_) failure_ = std::current_exception();
    }
    --taken_;
    one_alone_ = false;
    changed_.notify_all();
  }
  --working_;
  changed_.notify_all();
}

// Returns the best point of the condition whose keys this one scales; null if it scales none, or
// there is no such point.
Json Runner::base_of(const Place& place) const {
  const Workload& workload = study_.workloads()[place.workload];
  const auto& base = workload.conditions[place.condition].base;
  if (!base) return {};
  const Record* best = nullptr;
  for (const Standing& search : standings(place.workload, *base))
    best = better_of(workload, best, search.best(workload));
  return best ? best->point : Json();
}

void Runner::run_one(const Place& place, Devices& devices) {
  Json base;
  {
    const std::lock_guard lock(mutex_);
    base = base_of(place);
  }
  TrialSpec spec;
  try {
    spec = trial_spec(study_, place, base);
  } catch (const Error& error) {  // there is no base, or the job rejects a value
    const std::lock_guard lock(mutex_);
    finish(place, failed_record(study_, place, error), /*is_new=*/true, error.code());
    return;
  }
  const Record* earlier = folder_.earlier(place);
  if (earlier && earlier->digest == spec.digest) {
    const std::lock_guard lock(mutex_);
    finish(place, *earlier, /*is_new=*/false);
    return;
  }
  const auto run = std::make_shared<TrialRun>(study_, spec);
  const std::optional<Record> record = run_trial(run, devices);
  if (!record) return;
  const std::lock_guard lock(mutex_);
  if (runs_again_alone(place, run->error())) return;
  finish(place, *record, /*is_new=*/true, run->error());
  make_use_of_room(*run);
}

std::optional<Record> Runner::run_trial(const std::shared_ptr<TrialRun>& run, Devices& devices) {
  const Place place = run->spec().place;
  const Listed listed(*this, run);
  if (stop_.load()) return std::nullopt;  // after it was listed, so that no stop is missed
  return run->run(devices.first(), devices.of_trial(), [&](const CurvePoint& at, double best) {
    const std::lock_guard lock(mutex_);
    return standings(place)[place.search].verdict(study_.workloads()[place.workload], at, best);
  });
}

// The caller holds the mutex, so that the file and the counts agree.
void Runner::finish(const Place& place, const Record& record, bool is_new,
                    std::optional<Code> error) {
  const Workload& workload = study_.workloads()[place.workload];
  if (is_new) folder_.write(record);
  standings(place)[place.search].add(workload, record);
  if (record.status != Status::failed) {
    durations_.add(place, record.elapsed > 0 ? record.elapsed : record.spent.seconds, is_new);
    trained_.insert(condition_of(place));
  }
  ++done_;
  ++(is_new ? run_here_ : resumed_);
  const bool ends_condition = --left_.at(condition_of(place)) == 0;
  if (is_new) {
    latest_ = place;
    look_for_failure(place, record, error);
    Event event = event_of(EventKind::trial, place);
    event.record = record;
    events_.push_back(std::move(event));
  }
  if (ends_condition) {
    Event event = event_of(EventKind::condition, place);
    event.result = condition_result(study_, standings(place));
    events_.push_back(std::move(event));
  }
  changed_.notify_all();
}

// Ends the study if it is at fault itself, and not the values that its trials try: if all trials
// fail from the first on, or many in a row although others of the same condition have trained.
void Runner::look_for_failure(const Place& place, const Record& record, std::optional<Code> error) {
  const std::string text = train::without_device(record.error);
  failed_in_a_row_ = record.status != Status::failed ? 0
                     : text == last_error_           ? failed_in_a_row_ + 1
                                                     : 1;
  last_error_ = text;
  if (failure_ || failed_in_a_row_ < std::min(kFirstFailures, study_.trials())) return;
  std::string what;
  if (trained_.empty() && failed_in_a_row_ == run_here_)
    what = failed_in_a_row_ == 1
               ? "the first trial has failed: "
               : cat("the first ", failed_in_a_row_, " trials have all failed with one error: ");
  else if (failed_in_a_row_ >= kLaterFailures && trained_.contains(condition_of(place)) && error &&
           is_of_surroundings(*error))
    what = cat(failed_in_a_row_,
               " trials, one after another, have failed with one error, although "
               "others of that condition have trained: ");
  if (!what.empty()) failure_ = std::make_exception_ptr(Error(Code::state, cat(what, text)));
}

void Runner::stop_trials() {
  std::vector<std::shared_ptr<TrialRun>> running;
  {
    const std::lock_guard lock(mutex_);
    running.assign(running_.begin(), running_.end());
    changed_.notify_all();
  }
  for (const auto& run : running) run->stop();
}

void Runner::fill(Event& event) const {
  event.done = done_;
  event.total = study_.trials();
  event.resumed = resumed_;
  event.running = running_.size();
  event.parallel = parallel_;
  event.seconds = seconds_between(began_ns_, now_ns());
  event.seconds_left = seconds_left();
}

double Runner::seconds_left() const {
  double seconds = 0;
  uint64_t trials = 0;
  for (const auto& [condition, left] : left_) {
    if (left == 0) continue;
    seconds += static_cast<double>(left) * durations_.expected({condition.first, condition.second});
    trials += left;
  }
  for (const auto& run : running_)  // half done on average
    seconds -= 0.5 * durations_.expected(run->spec().place);
  return trials == 0 ? 0 : seconds / static_cast<double>(std::min(trials, parallel_));
}

Event Runner::event_of(EventKind kind, const Place& place) const {
  Event event;
  event.kind = kind;
  fill(event);
  const Workload& workload = study_.workloads()[place.workload];
  event.workload = workload.name;
  event.condition = workload.conditions[place.condition].name;
  const Record* best = standings(place.workload, place.condition)[place.search].best(workload);
  if (!best) return event;
  event.best_metric = best->best_metric;
  if (best->to_target) event.best_to_target = read_clock(*best->to_target, workload.budget.clock);
  return event;
}

bool Runner::over() const { return working_ == 0 && events_.empty(); }

Event Runner::next_event(double seconds) {
  if (!begun_) begin();
  const auto due = deadline_after(seconds);
  std::unique_lock lock(mutex_);
  while (events_.empty() && working_ > 0) {
    if (stop_.load() || failure_) {
      lock.unlock();
      stop_trials();
      lock.lock();
    }
    if (std::chrono::steady_clock::now() >= due) break;
    changed_.wait_until(lock, std::min(due, deadline_after(kPollSeconds)));
  }
  if (!events_.empty()) {
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  if (over() && failure_) std::rethrow_exception(failure_);
  return event_of(over() ? EventKind::end : EventKind::progress, latest_);
}

}  // namespace etr::study
