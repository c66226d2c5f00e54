// What results say beyond their numbers: where scaling ends, and what to be wary of.
#include "study/findings.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/json.h"
#include "core/number_text.h"
#include "study/labels.h"

namespace etr::study {
namespace {

constexpr size_t kSteps = 2;          // of kClocks
constexpr double kBorder = 0.05;      // of a range, at either end
constexpr double kFewFeasible = 0.5;  // of a condition's trials
constexpr size_t kSearchedFrom = 4;   // trials whose best point says where to search

double steps_of(const Summary& summary, size_t condition) {
  return summary.conditions[condition].to_target[kSteps].median;
}

void find_ends(const Summary& summary, ScalingResult& scaling) {
  const double first = steps_of(summary, scaling.at.front()), b0 = scaling.batches.front();
  double least = std::numeric_limits<double>::infinity();
  for (const size_t condition : scaling.at) {
    const double steps = steps_of(summary, condition);
    if (steps < least) least = steps;
  }
  bool perfect = std::isfinite(first);
  for (size_t i = 0; i < scaling.at.size(); ++i) {
    const double steps = steps_of(summary, scaling.at[i]);
    perfect = perfect && steps <= kPerfect * first * b0 / scaling.batches[i];
    if (perfect) scaling.perfect_until = scaling.batches[i];
    if (!scaling.largest_useful && std::isfinite(least) && steps <= kUseful * least)
      scaling.largest_useful = scaling.batches[i];
  }
}

// The keys of the space in the order of `unit`, with what the study says of each; null where that is not known.
std::vector<std::pair<std::string, Json>> axes_of(const Aim& aim, const Record& record) {
  std::vector<std::pair<std::string, Json>> out;
  if (record.point.is_object() && record.point.size() == record.unit.size())
    for (const auto& [key, value] : record.point.items())
      out.emplace_back(key, aim.space.is_object() ? aim.space.value(key, Json()) : Json());
  return out;
}

void warn_of_border(const Aim& aim, const Record& best, std::vector<std::string>& warnings) {
  const auto axes = axes_of(aim, best);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto& [key, axis] = axes[i];
    if (axis.is_object() && axis.contains("values")) continue;  // a list has no border
    if (best.unit[i] > kBorder && best.unit[i] < 1 - kBorder) continue;
    warnings.push_back(cat("the best trial has ", key, " = ", label_text(best.point[key]),
                           ", at the ", best.unit[i] < 0.5 ? "lower" : "upper",
                           " border of its range: widen the search"));
  }
}

void warn(const Aim& aim, const std::vector<Record>& records, ConditionResult& condition) {
  const size_t trials = condition.records.size();
  size_t feasible = 0, reached = 0;
  for (const SearchResult& search : condition.searches) {
    feasible += search.feasible;
    reached += std::isfinite(search.to_target[aim.clock]) ? 1 : 0;
  }
  if (feasible == 0)
    condition.warnings.push_back("no trial was feasible: all diverged or failed");
  else if (static_cast<double>(feasible) < kFewFeasible * static_cast<double>(trials))
    condition.warnings.push_back(cat("only ", feasible, " of ", trials,
                                     " trials were feasible; the others diverged or failed"));
  if (aim.target && reached == 0)
    condition.warnings.push_back("no trial reached the target");
  else if (aim.target && reached < condition.searches.size())
    condition.warnings.push_back(
        cat("only ", reached, " of ", condition.searches.size(), " searches reached the target"));
  if (condition.best && trials >= kSearchedFrom)
    warn_of_border(aim, records[*condition.best], condition.warnings);
}

}  // namespace

void find_scaling(Summary& summary) {
  if (summary.batch_label.empty()) return;
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < summary.conditions.size(); ++i) {
    const ConditionResult& condition = summary.conditions[i];
    const auto batch = condition.labels.find(summary.batch_label);
    if (batch == condition.labels.end() || !batch->is_number() || batch->get<double>() <= 0)
      continue;
    Json others = condition.labels;
    others.erase(summary.batch_label);
    const auto [entry, is_new] =
        known.try_emplace(cat(condition.workload, "\n", label_key(others)), summary.scaling.size());
    if (is_new) summary.scaling.push_back({condition.workload, others, {}, {}, {}, {}});
    summary.scaling[entry->second].at.push_back(i);
  }
  std::erase_if(summary.scaling, [](const ScalingResult& s) { return s.at.size() < 3; });
  const auto batch_of = [&](size_t i) {
    return summary.conditions[i].labels[summary.batch_label].get<double>();
  };
  for (ScalingResult& scaling : summary.scaling) {
    std::sort(scaling.at.begin(), scaling.at.end(),
              [&](size_t a, size_t b) { return batch_of(a) < batch_of(b); });
    for (const size_t condition : scaling.at) scaling.batches.push_back(batch_of(condition));
    find_ends(summary, scaling);
  }
}

void find_warnings(Summary& summary, const std::vector<Record>& records) {
  for (ConditionResult& condition : summary.conditions)
    warn(summary.aims[condition.workload], records, condition);
}

}  // namespace etr::study
