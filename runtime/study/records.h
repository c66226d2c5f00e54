// The record of a finished trial: one line of a study's trials.jsonl.
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

// How far a trial has come. Seconds are training time, without evaluations and the compilation of
// kernels.
struct Clock {
  double fresh = 0, examples = 0, steps = 0, seconds = 0;
};
constexpr std::array<const char*, 4> kClocks = {"fresh", "examples", "steps", "seconds"};

// Reads a clock by its index in kClocks, or by its name.
double read_clock(const Clock& clock, size_t which);
double read_clock(const Clock& clock, const std::string& name);
// Error(invalid_argument) names the nearest.
size_t clock_index(const std::string& name);

// An evaluation, with the mean of the training loss since the one before it.
struct CurvePoint {
  Clock at;
  double loss = kNone, accuracy = kNone, training_loss = kNone;
};

// Rounds to seven digits, about single precision, to which records keep metrics.
double rounded(double value);

// Returns the metric of a goal: the accuracy, or else the loss.
inline double metric_at(const CurvePoint& point, bool accuracy) {
  return accuracy ? point.accuracy : point.loss;
}
// Compares two such metrics. NaN is the worst.
bool is_better(double one, double other, bool accuracy);

enum class Status {
  reached,   // reached the target
  missed,    // the budget ended first
  diverged,  // a loss was not finite, or ten times the initial one
  slower,    // stopped: another of its search has reached the target with less
  pruned,    // stopped: worse than the median of its search
  failed     // an error ended it
};

const char* status_name(Status status);
// What `slower`, the status and the rule of that name, was called before 0.1.
inline constexpr const char* kFormerSlower = "beaten";

// Returns whether the trial counts in its search: it neither diverged nor failed.
inline bool is_feasible(Status status) {
  return status != Status::diverged && status != Status::failed;
}

// A finished trial.
struct Record {
  std::string workload;
  Json condition;  // its labels, in declaration order
  uint64_t search = 0, trial = 0, seed = 0;
  std::string digest;  // of TrialSpec::identity
  Json point;          // the values that the search drew, by key
  std::vector<double> unit;
  Status status = Status::failed;
  std::string error;               // of a failed trial; otherwise ""
  std::optional<Clock> to_target;  // if the target was reached
  double best_metric = kNone;
  Clock best_at;
  double final_metric = kNone;
  Clock spent;
  double elapsed = 0;  // seconds that the trial took in all; 0: unknown
  double device_wait_share = 0;
  std::optional<double> noise_scale;
  std::vector<CurvePoint> curve;
  std::string device, time, version;  // time: UTC, "2026-11-23T15:40:00Z"
  std::string host;  // processor and threads, which set the speed of upstream and of CPU devices
};

// Returns whether `one` is the better of two trials of a condition. Feasible trials come first,
// then those that took less to reach the target on `clock` (an index in kClocks), then those with
// the better metric, then those of the lower search and trial. No two trials are equal, so the
// order in which they ended does not matter.
bool is_better_trial(const Record& one, const Record& other, size_t clock, bool accuracy);

Json to_json(const Record& record);
Record record_of(const Json& line);  // Error(corrupt_data)

Json to_json(const Clock& clock);

// Returns all records of a file in order; none if there is no file. Leaves out an unfinished last
// line. If a trial was run again, its last record counts. Error(corrupt_data) names the line.
std::vector<Record> read_records(const std::string& path);

}  // namespace etr::study
