// What a study keeps of each finished trial: a line of its trials.jsonl.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace etr::study {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();  // null in JSON

// How far a trial was. Seconds are those of training: evaluations and the compilation of kernels do not count.
struct Clock {
  double fresh = 0, examples = 0, steps = 0, seconds = 0;
};
constexpr std::array<const char*, 4> kClocks = {"fresh", "examples", "steps", "seconds"};

// By its place in kClocks, or its name.
double read_clock(const Clock& clock, size_t which);
double read_clock(const Clock& clock, const std::string& name);
// Error(invalid_argument) that names the nearest.
size_t clock_index(const std::string& name);

// An evaluation, with the mean of the training loss since the one before it.
struct CurvePoint {
  Clock at;
  double loss = kNone, accuracy = kNone, training_loss = kNone;
};

// The metric of a goal: the accuracy, or else the loss.
inline double metric_at(const CurvePoint& point, bool accuracy) {
  return accuracy ? point.accuracy : point.loss;
}
// Of two such metrics. NaN is worse than all.
bool is_better(double one, double other, bool accuracy);

enum class Status {
  reached,   // the target
  missed,    // the budget ended first
  diverged,  // a loss was not finite, or ten times what it was at the beginning
  beaten,    // stopped: it could no longer be the best of its search
  hopeless,  // stopped: worse than the median of its search
  failed     // an error ended it
};

const char* status_name(Status status);

// Whether the trial counts as one of its search: neither diverged nor failed.
inline bool is_feasible(Status status) {
  return status != Status::diverged && status != Status::failed;
}

// A finished trial, as a line of trials.jsonl keeps it.
struct Record {
  std::string workload;
  Json condition;  // its labels, in the order of their declaration
  uint64_t search = 0, trial = 0, seed = 0;
  std::string digest;  // of TrialSpec::identity
  Json point;          // what the search has drawn, by key
  std::vector<double> unit;
  Status status = Status::failed;
  std::string error;               // of a failed one; "" otherwise
  std::optional<Clock> to_target;  // where it was reached
  double best_metric = kNone;
  Clock best_at;
  double final_metric = kNone;
  Clock spent;
  double device_wait_share = 0;
  std::optional<double> noise_scale;
  std::vector<CurvePoint> curve;
  std::string device, time, version;  // time: UTC, "2026-11-23T15:40:00Z"
};

// Whether `one` is the better of two trials of a condition: a feasible one before others, then the one with the fewer to the
// target on `clock` (a place in kClocks), then the one with the better metric, then that of the lower search and trial. No two
// trials are equal, so the order in which they ended never matters.
bool is_better_trial(const Record& one, const Record& other, size_t clock, bool accuracy);

Json to_json(const Record& record);
Record record_of(const Json& line);  // Error(corrupt_data)

Json to_json(const Clock& clock);

// All records of a file, in its order; none where there is no file. A last line that was not finished is left out, and of
// several records of one trial, which was run again, the last one counts. Error(corrupt_data) names the line.
std::vector<Record> read_records(const std::string& path);

}  // namespace etr::study
