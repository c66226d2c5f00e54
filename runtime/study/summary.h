// What a study's records say: results of each condition over its searches. Pure functions of the study and its records.
//
// A search's score on a clock is the least value at which one of its trials reached the target; trials that diverged or failed
// do not count. Over the searches of a condition there are a median, a least and a greatest score. A search that never
// reached the target counts as infinite there, so a median may be infinite.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "study/outline.h"
#include "study/records.h"

namespace etr::study {

constexpr size_t kStatusCount = 6;

struct Spread {
  double median = kNone, low = kNone, high = kNone;
  size_t finite = 0, count = 0;  // values that are no infinities, and all
};
// NaN is passed over. All NaN where there are no values.
Spread spread_of(std::vector<double> values);

struct SearchResult {
  uint64_t search = 0;
  size_t trials = 0, feasible = 0;
  std::array<double, 4> to_target{};  // by clock; infinite where no trial got there
  double best_metric = kNone;
  std::optional<size_t> best;  // the record of the best trial, see is_better_trial()
};

struct ConditionResult {
  size_t workload = 0;  // place in Summary::objectives
  Json labels;
  std::string name;  // "variant=none, factor=1"
  std::vector<size_t> records;
  std::vector<SearchResult> searches;
  std::array<size_t, kStatusCount> counts{};  // trials by Status
  std::array<Spread, 4> to_target;
  Spread best_metric;
  std::optional<size_t> best;      // record: of all searches
  std::optional<size_t> baseline;  // the condition that this one is compared with
  // The baseline's score over this one's on each clock, search by search: above 1 is better than the baseline. Infinite where only
  // this one reached the target, 0 where only the baseline did; a pair in which neither did says nothing and is left out.
  std::array<Spread, 4> gain;
  size_t gain_reached = 0;  // of those pairs: in which this one reached the target
  std::vector<std::string> warnings;
};

struct WorkloadResult {
  bool ends_at_target = false;  // trials did not go on: best metrics are hardly better than it
  std::vector<std::string> warnings;
};

// Steps to target against batch size, for conditions that differ in nothing else.
struct ScalingResult {
  size_t workload = 0;
  Json labels;                  // the others
  std::vector<size_t> at;       // conditions, from the smallest batch on
  std::vector<double> batches;  // of those
  // With b0 the smallest batch and s(b) the median of steps: scaling is perfect up to the largest batch b such that s is at most
  // kPerfect * s(b0) * b0 / b for it and all smaller ones. Nothing where s(b0) is not known.
  std::optional<double> perfect_until;
  // The smallest batch whose s is at most kUseful times the least of all: larger ones take no fewer steps.
  std::optional<double> largest_useful;
};
// Best scores of repeated searches differ by 10 to 20 %, so a fifth more than the ideal cannot be told from it. Useful is meant
// to be strict: a batch of twice the size that saves less than a twentieth of the steps is not worth its examples.
constexpr double kPerfect = 1.2, kUseful = 1.05;

struct Summary {
  std::vector<Objective> objectives;  // one a workload that has records, in the order of the study
  std::vector<WorkloadResult> workloads;  // of those
  std::vector<ConditionResult> conditions;
  std::vector<ScalingResult> scaling;
  Json
      baseline;  // labels: of the study's 'baseline', of a figure's, or else the value "none" or factor 1; null: there is none
  std::string batch_label;  // the label that counts as batch size; "": none
};

// Records may be of a part of the study, or none. Error(invalid_argument) for a record of a workload that the study has not.
Summary summarize(const Outline& study, const std::vector<Record>& records);

// The condition that is the baseline of another: of those with all labels of `baseline` the one that agrees with the other on
// every label in which they differ among themselves.
std::optional<size_t> baseline_of(const Summary& summary, size_t condition, const Json& baseline);

// results.json, and what it has of a condition. Infinite and unknown numbers are null.
Json to_json(const Summary& summary, const std::vector<Record>& records);
Json to_json(const Summary& summary, const ConditionResult& condition,
             const std::vector<Record>& records);

// Tables: a row for each condition, and one for each trial. Labels and searched keys have columns of their own.
std::string conditions_csv(const Summary& summary, const std::vector<Record>& records);
std::string trials_csv(const std::vector<Record>& records);

// Whether a table has a column of that name in any study: a label's column would be taken for it.
bool is_own_column(const std::string& name);

}  // namespace etr::study
