// Summarizes a study's records: results of each condition over its searches. Pure functions of the
// study and its records.
//
// A search's score on a clock is the least value at which one of its trials reached the target;
// trials that diverged or failed do not count. A condition has the median, least and greatest score
// of its searches. A search that never reached the target scores infinity, so a median may be
// infinite.
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
  size_t finite = 0, count = 0;  // finite values, and all values
};
// Ignores NaN, which are neither finite nor counted.
Spread spread_of(std::vector<double> values);

struct SearchResult {
  uint64_t search = 0;
  size_t trials = 0, feasible = 0;
  std::array<double, 4> to_target{};  // by clock; infinite if no trial reached the target
  double best_metric = kNone;
  std::optional<size_t> best;  // record of the best trial; see is_better_trial()
};

struct ConditionResult {
  size_t workload = 0;  // index in Summary::objectives
  Json labels;
  std::string name;  // "variant=none, factor=1"
  std::vector<size_t> records;
  std::optional<uint64_t> planned;  // trials; unknown if the study does not say
  std::vector<SearchResult> searches;
  std::array<size_t, kStatusCount> counts{};  // trials by Status
  std::array<Spread, 4> to_target;
  Spread best_metric;
  std::optional<size_t> best;      // record, among all searches
  std::optional<size_t> baseline;  // the condition with which this one is compared
  // The baseline's score divided by this one's on each clock, search by search: above 1 is better
  // than the baseline. Infinite if only this one reached the target, 0 if only the baseline did.
  // Pairs in which neither did are left out.
  std::array<Spread, 4> gain;
  size_t gain_reached = 0;  // pairs in which this condition reached the target
  std::vector<std::string> warnings;
  bool borders_checked = false;  // whether a best point was checked for lying at one

  bool is_complete() const { return !planned || records.size() >= *planned; }
};

struct WorkloadResult {
  // Trials stopped at the target, so best metrics are hardly better than it.
  bool ends_at_target = false;
  std::string batch_label;  // see batch_label_of()
  std::vector<std::string> warnings;
};

// Steps to target against batch size, for conditions that differ in nothing else.
struct ScalingResult {
  size_t workload = 0;
  Json labels;                  // the other labels
  std::vector<size_t> at;       // conditions, in order of batch size
  std::vector<double> batches;  // sizes of these
  // With b0 the smallest batch and s(b) the median steps, scaling is perfect up to the largest
  // batch b such that s is at most kPerfect * s(b0) * b0 / b for it and all smaller ones. None if
  // s(b0) is unknown.
  std::optional<double> perfect_until;
  // The smallest batch whose s is at most kUseful times the least s. Larger batches save hardly any
  // steps.
  std::optional<double> largest_useful;
  // The critical batch size of McCandlish et al. (2018), where a run takes twice the fewest steps
  // and twice the fewest examples that any batch size could take. None if it does not lie between
  // the batch sizes with the fewest examples and the fewest steps.
  std::optional<double> critical_batch;
  // Its predictor, the gradient noise scale in examples, as the best trials measured it.
  Spread noise_scale;
};
// Best scores of repeated searches differ by 10 to 20 %, so a fifth above the ideal is within the
// noise. kUseful is strict on purpose: doubling the batch to save less than a twentieth of the
// steps is not worth it.
constexpr double kPerfect = 1.2, kUseful = 1.05;

struct Summary {
  std::vector<Objective> objectives;      // one per workload with records, in the study's order
  std::vector<WorkloadResult> workloads;  // of the same workloads
  std::vector<ConditionResult> conditions;
  std::vector<ScalingResult> scaling;
  // Labels: the study's 'baseline', that of a figure, or else the value "none" or factor 1; null:
  // none.
  Json baseline;
};

// Returns the label that is taken as batch size: the first one with a number and "batch" in its
// name among the workload's conditions; "": none.
std::string batch_label_of(const std::vector<ConditionResult>& conditions, size_t workload);

// Records may cover a part of the study, or nothing. Error(invalid_argument) for a record of an
// unknown workload.
Summary summarize(const Outline& study, const std::vector<Record>& records);

// Returns the baseline of a condition. Several conditions may have all labels of `baseline`; the
// result is the one that agrees with `condition` on all labels in which these differ.
std::optional<size_t> baseline_of(const Summary& summary, size_t condition, const Json& baseline);

// Return results.json, and its entry for a condition. Infinite and unknown numbers are null.
Json to_json(const Summary& summary, const std::vector<Record>& records);
Json to_json(const Summary& summary, const ConditionResult& condition,
             const std::vector<Record>& records);

// Return tables with a row for each condition, or trial. Labels and searched keys have their own
// columns.
std::string conditions_csv(const Summary& summary, const std::vector<Record>& records);
std::string trials_csv(const std::vector<Record>& records);

// Returns whether a table of any study has a column of that name, with which a label's would be
// confused.
bool is_own_column(const std::string& name);

}  // namespace etr::study
