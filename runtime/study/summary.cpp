#include "study/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "core/label_text.h"
#include "study/findings.h"
#include "study/labels.h"

namespace etr::study {
namespace {

// Returns the objectives of the workloads that have records.
std::vector<Objective> objectives_of(const Outline& study, const std::vector<Record>& records) {
  std::set<std::string> recorded;
  for (const Record& record : records) recorded.insert(record.workload);
  std::vector<Objective> out;
  for (const Objective& objective : study.objectives)
    if (recorded.erase(objective.workload) > 0) out.push_back(objective);
  if (!recorded.empty())
    fail(Code::invalid_argument, "a record is of the workload '", *recorded.begin(),
         "', which the study does not have");
  return out;
}

void add_to_search(const Objective& objective, const std::vector<Record>& records, size_t index,
                   SearchResult& search) {
  const Record& record = records[index];
  ++search.trials;
  if (!is_feasible(record.status)) return;
  ++search.feasible;
  if (!search.best ||
      is_better_trial(record, records[*search.best], objective.clock, objective.accuracy))
    search.best = index;
  if (record.to_target)
    for (size_t clock = 0; clock < kClocks.size(); ++clock)
      search.to_target[clock] =
          std::min(search.to_target[clock], read_clock(*record.to_target, clock));
  if (is_better(record.best_metric, search.best_metric, objective.accuracy))
    search.best_metric = record.best_metric;
}

SearchResult& search_of(ConditionResult& condition, uint64_t number) {
  for (SearchResult& search : condition.searches)
    if (search.search == number) return search;
  SearchResult search{number};
  search.to_target.fill(std::numeric_limits<double>::infinity());
  condition.searches.push_back(search);
  return condition.searches.back();
}

std::vector<ConditionResult> grouped(const std::vector<Objective>& objectives,
                                     const std::vector<Record>& records) {
  std::vector<ConditionResult> out;
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < records.size(); ++i) {
    const Record& record = records[i];
    const std::string key = record.workload + "\n" + label_key(record.condition);
    const auto [entry, is_new] = known.try_emplace(key, out.size());
    if (is_new) {
      ConditionResult condition;
      while (objectives[condition.workload].workload != record.workload) ++condition.workload;
      condition.labels = record.condition;
      condition.name = labels_text(record.condition);
      out.push_back(std::move(condition));
    }
    out[entry->second].records.push_back(i);
  }
  std::stable_sort(out.begin(), out.end(), [](const ConditionResult& a, const ConditionResult& b) {
    return a.workload < b.workload;
  });
  return out;
}

void take_results(const Objective& objective, const std::vector<Record>& records,
                  ConditionResult& condition) {
  if (const auto planned = objective.planned.find(label_key(condition.labels));
      planned != objective.planned.end())
    condition.planned = planned->second;
  for (const size_t index : condition.records) {
    ++condition.counts[static_cast<size_t>(records[index].status)];
    add_to_search(objective, records, index, search_of(condition, records[index].search));
  }
  std::sort(condition.searches.begin(), condition.searches.end(),
            [](const SearchResult& a, const SearchResult& b) { return a.search < b.search; });
  std::vector<double> metrics;
  SearchResult best;  // of all searches together
  for (const SearchResult& search : condition.searches) {
    metrics.push_back(search.best_metric);
    if (search.best) add_to_search(objective, records, *search.best, best);
  }
  condition.best = best.best;
  condition.best_metric = spread_of(metrics);
  for (size_t clock = 0; clock < kClocks.size(); ++clock) {
    std::vector<double> scores;
    for (const SearchResult& search : condition.searches) scores.push_back(search.to_target[clock]);
    condition.to_target[clock] = spread_of(scores);
  }
}

// Gains are ratios, so the median of an even number is the geometric mean of the middle two. If
// exactly half of the gains are infinite, it is the largest finite one, since a mean with an
// infinite one would claim more than is known.
Spread spread_of_gains(std::vector<double> gains) {
  Spread out = spread_of(gains);
  std::erase_if(gains, [](double gain) { return std::isnan(gain); });
  std::sort(gains.begin(), gains.end());
  const size_t half = gains.size() / 2;
  if (gains.empty() || gains.size() % 2) return out;
  out.median = std::isinf(gains[half]) && std::isfinite(gains[half - 1])
                   ? gains[half - 1]
                   : std::sqrt(gains[half - 1]) * std::sqrt(gains[half]);
  return out;
}

// Compares search by search, because searches with the same number drew the same points.
void take_gain(const ConditionResult& baseline, ConditionResult& condition) {
  std::array<std::vector<double>, 4> gains;
  for (const SearchResult& search : condition.searches)
    for (const SearchResult& other : baseline.searches) {
      if (search.search != other.search) continue;
      for (size_t clock = 0; clock < kClocks.size(); ++clock)  // NaN if neither reached it
        gains[clock].push_back(other.to_target[clock] / search.to_target[clock]);
      condition.gain_reached += std::isfinite(search.to_target[0]) ? 1 : 0;
    }
  for (size_t clock = 0; clock < kClocks.size(); ++clock)
    condition.gain[clock] = spread_of_gains(std::move(gains[clock]));
}

Json baseline_labels(const Outline& study, const std::vector<ConditionResult>& conditions) {
  if (study.baseline.is_object()) return study.baseline;
  for (const Json& figure : study.figures)
    if (figure.is_object() && figure.contains("baseline") && figure["baseline"].is_object())
      return figure["baseline"];
  for (const auto& is :
       {+[](const std::string&, const Json&value) { return value == "none"; },
        +[](const std::string&name, const Json&value) { return name == "factor" && value == 1; }})
    for (const ConditionResult& condition : conditions)
      for (const auto& [name, value] : condition.labels.items())
        if (is(name, value)) return Json{{name, value}};
  return nullptr;
}

}  // namespace

std::string batch_label_of(const std::vector<ConditionResult>& conditions, size_t workload) {
  for (const ConditionResult& condition : conditions)
    for (const auto& [name, value] : condition.labels.items())
      if (condition.workload == workload && value.is_number() &&
          name.find("batch") != std::string::npos)
        return name;
  return "";
}

Spread spread_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  Spread out;
  out.count = values.size();
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  out.low = values.front();
  out.high = values.back();
  out.median = values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
  out.finite = static_cast<size_t>(std::count_if(
      values.begin(), values.end(), [](double value) { return std::isfinite(value); }));
  return out;
}

std::optional<size_t> baseline_of(const Summary& summary, size_t condition, const Json& baseline) {
  if (!baseline.is_object()) return {};
  const ConditionResult& of = summary.conditions[condition];
  std::vector<size_t> candidates;
  for (size_t i = 0; i < summary.conditions.size(); ++i)
    if (summary.conditions[i].workload == of.workload &&
        has_labels(summary.conditions[i].labels, baseline))
      candidates.push_back(i);
  if (candidates.empty()) return {};
  Json differing = Json::object();  // labels in which the candidates differ, with the wanted values
  const Json& first = summary.conditions[candidates.front()].labels;
  for (const size_t candidate : candidates)
    for (const auto& [name, value] : summary.conditions[candidate].labels.items())
      if (first.value(name, Json()) != value) differing[name] = of.labels.value(name, Json());
  for (const size_t candidate : candidates)
    if (has_labels(summary.conditions[candidate].labels, differing)) return candidate;
  return {};
}

namespace {

bool ends_at_target(const std::string& workload, const std::vector<Record>& records) {
  bool any = false;
  for (const Record& record : records) {
    if (record.workload != workload || !record.to_target) continue;
    if (record.spent.steps > record.to_target->steps) return false;
    any = any || record.spent.steps > 0;
  }
  return any;
}

}  // namespace

Summary summarize(const Outline& study, const std::vector<Record>& records) {
  Summary out;
  out.objectives = objectives_of(study, records);
  for (const Objective& objective : out.objectives)
    out.workloads.push_back({ends_at_target(objective.workload, records), "", {}});
  out.conditions = grouped(out.objectives, records);
  for (ConditionResult& condition : out.conditions)
    take_results(out.objectives[condition.workload], records, condition);
  out.baseline = baseline_labels(study, out.conditions);
  for (size_t i = 0; i < out.conditions.size(); ++i) {
    const auto baseline = baseline_of(out, i, out.baseline);
    if (!baseline || *baseline == i) continue;
    out.conditions[i].baseline = baseline;
    take_gain(out.conditions[*baseline], out.conditions[i]);
  }
  for (size_t i = 0; i < out.workloads.size(); ++i)
    out.workloads[i].batch_label = batch_label_of(out.conditions, i);
  find_scaling(out, records);
  find_warnings(out, records);
  return out;
}

}  // namespace etr::study
