// Conclusions from results: where scaling ends, and warnings.
#include "study/findings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "core/format_text.h"
#include "core/json.h"
#include "core/label_text.h"
#include "core/number_text.h"
#include "study/labels.h"

namespace etr::study {
namespace {

constexpr size_t kExamples = 1, kSteps = 2, kSeconds = 3;  // indices in kClocks
constexpr double kBorder = 0.05;                           // of a range, at either end
constexpr double kFewFeasible = 0.5;                       // of a condition's trials
constexpr size_t kSearchedFrom = 4;  // trials from which the best point says where to search

double steps_of(const Summary& summary, size_t condition) {
  return summary.conditions[condition].to_target[kSteps].median;
}

// Returns the place in `conditions` of the one with the least median on a clock; none if none
// reached the target.
std::optional<size_t> least_at(const Summary& summary, const std::vector<size_t>& conditions,
                               size_t clock) {
  std::optional<size_t> out;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < conditions.size(); ++i) {
    const double median = summary.conditions[conditions[i]].to_target[clock].median;
    if (!(median < least)) continue;  // or NaN
    least = median;
    out = i;
  }
  return out;
}

void find_ends(const Summary& summary, ScalingResult& scaling) {
  const double first = steps_of(summary, scaling.at.front()), b0 = scaling.batches.front();
  const auto fewest = least_at(summary, scaling.at, kSteps);
  const double least =
      fewest ? steps_of(summary, scaling.at[*fewest]) : std::numeric_limits<double>::infinity();
  bool perfect = std::isfinite(first);
  for (size_t i = 0; i < scaling.at.size(); ++i) {
    const double steps = steps_of(summary, scaling.at[i]);
    perfect = perfect && steps <= kPerfect * first * b0 / scaling.batches[i];
    if (perfect) scaling.perfect_until = scaling.batches[i];
    if (!scaling.largest_useful && std::isfinite(least) && steps <= kUseful * least)
      scaling.largest_useful = scaling.batches[i];
  }
}

// Let S0 and E0 be the least steps and examples of all. The model says S(b) = S0 (1 + c / b) and
// E(b) = E0 (1 + b / c), with c = E0 / S0 the critical batch. So it follows from the fewest
// examples that were measured, at batch e, and the fewest steps, at batch s.
void find_critical_batch(const Summary& summary, const std::vector<Record>& records,
                         ScalingResult& scaling) {
  const auto e = least_at(summary, scaling.at, kExamples),
             s = least_at(summary, scaling.at, kSteps);
  if (e && s) {
    const double ratio = summary.conditions[scaling.at[*e]].to_target[kExamples].median /
                         steps_of(summary, scaling.at[*s]);
    const double at_e = scaling.batches[*e], at_s = scaling.batches[*s];
    if (ratio > at_e && ratio < at_s) scaling.critical_batch = (ratio - at_e) / (1 - ratio / at_s);
  }
  std::vector<double> noise;
  for (const size_t condition : scaling.at)
    if (const auto best = summary.conditions[condition].best; best && records[*best].noise_scale)
      noise.push_back(*records[*best].noise_scale);
  scaling.noise_scale = spread_of(noise);
}

std::string short_text(double value) { return format_text("%.4g", value); }

// Best trials of searches that lie at the same border of a key's range.
struct AtBorder {
  std::string key;
  bool lower = false;
  std::vector<std::string> values;  // their values
};

// Returns whether there is a border at which the point might lie.
bool look_at_borders(const Space& space, const Record& best, std::vector<AtBorder>& found) {
  const std::vector<Dimension>& dimensions = space.dimensions();
  if (best.unit.size() != dimensions.size()) return false;  // from another version of the study
  bool any = false;
  for (size_t i = 0; i < dimensions.size(); ++i) {
    if (!dimensions[i].values.empty()) continue;  // a list has no border
    any = true;
    const std::string& key = dimensions[i].key;
    const Json value = best.point.value(key, Json());
    double place = best.unit[i], margin = kBorder;
    if (dimensions[i].integer && value.is_number()) {  // the ends themselves
      place = (value.get<double>() - dimensions[i].from) / (dimensions[i].to - dimensions[i].from);
      margin = 0;
    }
    if (place > margin && place < 1 - margin) continue;
    const bool lower = place < 0.5;
    auto at = std::find_if(found.begin(), found.end(), [&](const AtBorder& border) {
      return border.key == key && border.lower == lower;
    });
    if (at == found.end()) at = found.insert(found.end(), {key, lower, {}});
    at->values.push_back(value.is_number() ? short_text(value.get<double>()) : label_text(value));
  }
  return any;
}

void warn_of_borders(const Objective& objective, const std::vector<Record>& records,
                     ConditionResult& condition) {
  const auto space = objective.spaces.find(label_key(condition.labels));
  if (space == objective.spaces.end()) return;
  std::vector<AtBorder> found;
  size_t searched = 0;
  for (const SearchResult& search : condition.searches) {
    if (!search.best || search.trials < kSearchedFrom) continue;
    ++searched;
    if (look_at_borders(space->second, records[*search.best], found))
      condition.borders_checked = true;
  }
  for (const AtBorder& border : found) {
    std::string values;
    for (const std::string& value : border.values) values += (values.empty() ? "" : ", ") + value;
    condition.warnings.push_back(cat(
        searched == 1
            ? "the best trial has "
            : cat("the best trials of ", border.values.size(), " of ", searched, " searches have "),
        border.key, " = ", values, ", at the ", border.lower ? "lower" : "upper",
        " border of its range: widen the search"));
  }
}

void warn(const Objective& objective, const std::vector<Record>& records,
          ConditionResult& condition) {
  const size_t trials = condition.records.size(), searches = condition.searches.size();
  size_t feasible = 0, reached = 0, without_feasible = 0;
  for (const SearchResult& search : condition.searches) {
    feasible += search.feasible;
    without_feasible += search.feasible == 0;
    reached += std::isfinite(search.to_target[objective.clock]) ? 1 : 0;
  }
  if (!condition.is_complete()) {  // what it says of searches and borders may still change
    condition.warnings.push_back(
        cat("only ", trials, " of ", *condition.planned, " trials have ended so far"));
    return;
  }
  if (feasible == 0)
    condition.warnings.push_back("no trial was feasible: all diverged or failed");
  else if (static_cast<double>(feasible) < kFewFeasible * static_cast<double>(trials))
    condition.warnings.push_back(cat("only ", feasible, " of ", trials,
                                     " trials were feasible; the others diverged or failed"));
  if (feasible > 0 && without_feasible > 0)
    condition.warnings.push_back(cat("the best ", objective.metric(), " leaves out ",
                                     without_feasible, " of ", searches,
                                     " searches, in which no trial was feasible"));
  if (objective.target && reached == 0)
    condition.warnings.push_back("no trial reached the target");
  else if (objective.target && reached < searches)
    condition.warnings.push_back(
        cat("only ", reached, " of ", searches, " searches reached the target"));
  warn_of_borders(objective, records, condition);
}

// Returns the trials of the largest search.
size_t trials_of_search(const ConditionResult& condition) {
  size_t out = 0;
  for (const SearchResult& search : condition.searches) out = std::max(out, search.trials);
  return out;
}

// Warns of searches with different numbers of trials: the best of more trials is better, whatever
// is compared.
void warn_of_baseline(const ConditionResult& baseline, ConditionResult& condition) {
  const size_t here = trials_of_search(condition), there = trials_of_search(baseline);
  if (here == there || !condition.is_complete() || !baseline.is_complete()) return;
  condition.warnings.push_back(cat("a search has ", here, " trials, and one of the baseline ",
                                   there, ", so the speed-up is also one of searching"));
}

// Times of different devices or hosts cannot be compared.
void warn_of_devices(const Objective& objective, const std::vector<Record>& records,
                     std::vector<std::string>& warnings) {
  if (objective.clock != kSeconds) return;
  const auto warn = [&](const char* what, std::string Record::*part) {
    std::set<std::string> different;
    for (const Record& record : records)
      if (record.workload == objective.workload && !(record.*part).empty())
        different.insert(record.*part);
    if (different.size() < 2) return;
    std::string names;
    for (const std::string& name : different) names += (names.empty() ? "" : "; ") + name;
    warnings.push_back(cat("scores are in seconds, and trials ran on ", different.size(), " ", what,
                           ", which makes them hard to compare: ", names));
  };
  warn("devices", &Record::device);
  warn("hosts", &Record::host);  // "" in records of before: not known
}

}  // namespace

void find_scaling(Summary& summary, const std::vector<Record>& records) {
  std::map<std::string, size_t> known;
  const auto label_of = [&](const ConditionResult& condition) {
    return summary.workloads[condition.workload].batch_label;
  };
  for (size_t i = 0; i < summary.conditions.size(); ++i) {
    const ConditionResult& condition = summary.conditions[i];
    const auto batch = condition.labels.find(label_of(condition));
    if (batch == condition.labels.end() || !batch->is_number() || batch->get<double>() <= 0)
      continue;
    Json others = condition.labels;
    others.erase(label_of(condition));
    const auto [entry, is_new] =
        known.try_emplace(cat(condition.workload, "\n", label_key(others)), summary.scaling.size());
    if (is_new) summary.scaling.push_back({condition.workload, others, {}, {}, {}, {}, {}, {}});
    summary.scaling[entry->second].at.push_back(i);
  }
  std::erase_if(summary.scaling, [](const ScalingResult& s) { return s.at.size() < 3; });
  const auto batch_of = [&](size_t i) {
    const ConditionResult& condition = summary.conditions[i];
    return condition.labels[label_of(condition)].get<double>();
  };
  for (ScalingResult& scaling : summary.scaling) {
    std::sort(scaling.at.begin(), scaling.at.end(),
              [&](size_t a, size_t b) { return batch_of(a) < batch_of(b); });
    for (const size_t condition : scaling.at) scaling.batches.push_back(batch_of(condition));
    find_ends(summary, scaling);
    find_critical_batch(summary, records, scaling);
  }
}

void find_warnings(Summary& summary, const std::vector<Record>& records) {
  for (ConditionResult& condition : summary.conditions)
    warn(summary.objectives[condition.workload], records, condition);
  for (ConditionResult& condition : summary.conditions)
    if (condition.baseline) warn_of_baseline(summary.conditions[*condition.baseline], condition);
  for (size_t i = 0; i < summary.workloads.size(); ++i)
    warn_of_devices(summary.objectives[i], records, summary.workloads[i].warnings);
}

}  // namespace etr::study
