// Runs the trials of a study: their order, how many at once, and the events.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gpu/device.h"
#include "gpu/kernel.h"
#include "study/durations.h"
#include "study/folder.h"
#include "study/standing.h"
#include "study/study.h"
#include "study/trial.h"

namespace etr::study {

struct RunOptions {
  std::string folder;
  bool overwrite = false;            // moves the results of earlier parts aside
  std::optional<uint64_t> parallel;  // instead of the study's
  train::Team::Open open;            // opens the devices of other threads and ranks
  std::optional<uint64_t> cores;     // for trials; none: those that this process may use
};

enum class EventKind { progress, trial, condition, end };

// An event of a study. `condition` follows the `trial` event of a condition's last trial.
struct Event {
  EventKind kind = EventKind::progress;
  uint64_t done = 0, total = 0;  // trials, including those of earlier parts
  uint64_t resumed = 0;          // of these: found finished in the folder
  uint64_t running = 0, parallel = 1;
  double seconds = 0;               // since this part began
  double seconds_left = kNone;      // estimated from the trials of the same conditions
  std::string workload, condition;  // of the trial, or of the one begun last
  std::optional<double> best_to_target;
  double best_metric = kNone;    // of that condition, in the current search
  std::optional<Record> record;  // of a trial
  Json result;                   // of a condition; see condition_result()
};

Json to_json(const Event& event, const Study& study);

// Returns what results() will report for a condition, except its baseline, from the standings of
// its searches, which have at least one record.
Json condition_result(const Study& study, const std::vector<Standing>& searches);

// Returns the records of the study's trials that the folder has so far, in the order of places.
// Leaves out trials that the study no longer has. Error(state) if the study now defines them
// differently.
std::vector<Record> records_of(const Study& study, const std::string& folder);

// Returns the conditions of results.json from the records in the folder, also while a study runs
// there.
Json results(const Study& study, const std::string& folder);

// Used by one thread, except stop(). Trials train on threads of their own. All trials of a thread
// share its devices and their kernels, since the values that a search draws change only the
// kernels' data, not their code.
class Runner {
 public:
  // Error(state) as in StudyFolder. Begins at the first next_event().
  Runner(std::shared_ptr<gpu::Kernels> kernels, Study study, const RunOptions& options);
  // Stops running trials; the next run of the study begins with them.
  ~Runner();

  // Waits up to `seconds` for an event; without one, returns a progress event. The last event is
  // `end`, which further calls return again. Throws the error that ended the study, such as one
  // that all its first trials had.
  Event next_event(double seconds = 0.25);

  // Any thread.
  const std::string& folder() const { return folder_.path(); }

  // Ends the study at the next call of next_event(), without finishing running trials. May be
  // called on any thread, at any time, and from signal handlers.
  void stop() { stop_.store(true); }

 private:
  void begin();
  void take_stock();
  std::shared_ptr<gpu::Kernels> kernels_of(size_t slot) const;
  class Devices;
  class Listed;
  void work(size_t slot);
  void run_on(std::optional<Devices>& devices, size_t slot, const Place& place);
  std::optional<Place> take(std::unique_lock<std::mutex>& lock);
  bool may_begin(const Place& place) const;
  bool runs_again_alone(const Place& place, std::optional<Code> error);
  void start_threads(uint64_t count);
  void make_use_of_room(const TrialRun& ended);
  void run_one(const Place& place, Devices& devices);
  void finish(const Place& place, const Record& record, bool is_new,
              std::optional<Code> error = {});
  void look_for_failure(const Place& place, const Record& record, std::optional<Code> error);
  Json base_of(const Place& place) const;
  std::optional<Record> run_trial(const std::shared_ptr<TrialRun>& run, Devices& devices);
  void stop_trials();
  void fill(Event& event) const;
  double seconds_left() const;
  Event event_of(EventKind kind, const Place& place) const;
  bool over() const;
  std::vector<Standing>& standings(const Place& place);
  const std::vector<Standing>& standings(size_t workload, size_t condition) const;

  const std::shared_ptr<gpu::Kernels> kernels_;
  const train::Team::Open open_;
  const uint64_t cores_;
  const Study study_;
  StudyFolder folder_;
  bool as_there_is_room_ = false;  // the first trial decides how many run at once
  std::atomic<bool> stop_{false};

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<Place> pending_;
  std::set<Place> alone_;   // trials that ran out of memory beside others
  size_t taken_ = 0;        // trials that threads have taken and not ended
  bool one_alone_ = false;  // one of alone_ is taken
  std::map<std::pair<size_t, size_t>, uint64_t> left_;  // unfinished trials of a condition
  // The standing of each search of a condition.
  std::map<std::pair<size_t, size_t>, std::vector<Standing>> standings_;
  Durations durations_;
  std::set<std::shared_ptr<TrialRun>> running_;
  std::deque<Event> events_;
  std::exception_ptr failure_;
  std::string last_error_;
  uint64_t failed_in_a_row_ = 0;                 // with that error
  std::set<std::pair<size_t, size_t>> trained_;  // conditions with a trial that did not fail
  uint64_t done_ = 0, resumed_ = 0, run_here_ = 0;
  Place latest_;
  int64_t began_ns_ = 0;
  bool begun_ = false;
  uint64_t parallel_ = 1;
  size_t working_ = 0;  // threads
  std::vector<std::thread> threads_;
};

// Returns whether trials are scored by time, and so run one by one by default.
bool is_timed(const Study& study);

// Returns how many concurrent trials are worthwhile on a device, if each has `ranks` ranks that
// take `rank_bytes` of its memory.
uint64_t room_on(const gpu::DeviceInfo& device, uint64_t cores, uint64_t rank_bytes,
                 uint64_t ranks = 1);

}  // namespace etr::study
