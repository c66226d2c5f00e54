// Writes results.json and the tables.
#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/exact_number.h"
#include "core/json.h"
#include "core/label_text.h"
#include "plot/text.h"
#include "study/summary.h"

namespace etr::study {
namespace {

using plot::csv_field;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json json_of(const Spread& spread) {
  return {{"median", number(spread.median)},
          {"min", number(spread.low)},
          {"max", number(spread.high)},
          {"reached", spread.finite},
          {"count", spread.count}};
}

Json by_clock(const std::array<Spread, 4>& spreads) {
  Json out = Json::object();
  for (size_t i = 0; i < kClocks.size(); ++i) out[kClocks[i]] = json_of(spreads[i]);
  return out;
}

Json gain_of(const ConditionResult& condition) {
  Json out = Json::object();
  for (size_t i = 0; i < kClocks.size(); ++i) {
    const Spread& gain = condition.gain[i];
    out[kClocks[i]] = {{"median", number(gain.median)},
                       {"min", number(gain.low)},
                       {"max", number(gain.high)},
                       {"pairs", gain.count},
                       {"reached", condition.gain_reached}};
  }
  return out;
}

Json counts_of(const ConditionResult& condition) {
  Json out = Json::object();
  for (size_t i = 0; i < kStatusCount; ++i)
    out[status_name(static_cast<Status>(i))] = condition.counts[i];
  return out;
}

Json json_of(const SearchResult& search, const std::vector<Record>& records) {
  Json out = {{"search", search.search}, {"trials", search.trials}, {"feasible", search.feasible}};
  Json scores = Json::object();
  for (size_t i = 0; i < kClocks.size(); ++i) scores[kClocks[i]] = number(search.to_target[i]);
  out["to_target"] = scores;
  out["best_metric"] = number(search.best_metric);
  out["best_trial"] = search.best ? Json(records[*search.best].trial) : Json();
  return out;
}

Json best_of(const Record& record) {
  return {{"search", record.search}, {"trial", record.trial},
          {"seed", record.seed},     {"status", status_name(record.status)},
          {"point", record.point},   {"metric", number(record.best_metric)}};
}

Json json_of(const Summary& summary, const ScalingResult& scaling) {
  Json points = Json::array();
  for (size_t i = 0; i < scaling.at.size(); ++i)
    points.push_back({{"batch", scaling.batches[i]},
                      {"steps", json_of(summary.conditions[scaling.at[i]].to_target[2])}});
  const auto known = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  return {{"workload", summary.objectives[scaling.workload].workload},
          {"labels", scaling.labels},
          {"points", points},
          {"perfect_until", known(scaling.perfect_until)},
          {"largest_useful", known(scaling.largest_useful)},
          {"critical_batch", known(scaling.critical_batch)},
          {"noise_scale", json_of(scaling.noise_scale)}};
}

// Adds names in the order in which they first appear.
void add_names(std::vector<std::string>& names, const Json& object) {
  if (!object.is_object()) return;
  for (const auto& [name, value] : object.items())
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

std::string row(const std::vector<std::string>& fields) {
  std::string out;
  for (const std::string& field : fields) out += csv_field(field) + ",";
  out.back() = '\n';
  return out;
}

void add_values(std::vector<std::string>& fields, const Json& object,
                const std::vector<std::string>& names) {
  for (const std::string& name : names)
    fields.push_back(object.is_object() && object.contains(name) ? label_text(object[name]) : "");
}

void add_spread(std::vector<std::string>& fields, const Spread& spread) {
  for (const double value : {spread.median, spread.low, spread.high})
    fields.push_back(exact_number(value));
}

void add_clock(std::vector<std::string>& fields, const std::optional<Clock>& clock) {
  for (size_t i = 0; i < kClocks.size(); ++i)
    fields.push_back(clock ? exact_number(read_clock(*clock, i)) : "");
}

void add_clock_names(std::vector<std::string>& fields, const std::string& prefix) {
  for (const char* clock : kClocks) fields.push_back(prefix + clock);
}

void add_spread_names(std::vector<std::string>& fields, const std::string& name) {
  for (const char* part : {"_median", "_least", "_most"}) fields.push_back(name + part);
}

}  // namespace

Json to_json(const Summary& summary, const ConditionResult& condition,
             const std::vector<Record>& records) {
  const Objective& objective = summary.objectives[condition.workload];
  Json out = {{"workload", objective.workload},
              {"labels", condition.labels},
              {"name", condition.name},
              {"metric", objective.metric()},
              {"target", objective.target ? Json(*objective.target) : Json()},
              {"clock", kClocks[objective.clock]},
              {"trials", condition.records.size()},
              {"planned", condition.planned ? Json(*condition.planned) : Json()},
              {"counts", counts_of(condition)},
              {"to_target", by_clock(condition.to_target)},
              {"best_metric", json_of(condition.best_metric)}};
  out["best"] = condition.best ? best_of(records[*condition.best]) : Json();
  out["baseline"] =
      condition.baseline ? Json(summary.conditions[*condition.baseline].name) : Json();
  out["gain"] = condition.baseline ? gain_of(condition) : Json();
  out["searches"] = Json::array();
  for (const SearchResult& search : condition.searches)
    out["searches"].push_back(json_of(search, records));
  out["warnings"] = condition.warnings;
  return out;
}

Json to_json(const Summary& summary, const std::vector<Record>& records) {
  Json out = {{"v", 1}, {"workloads", Json::array()}, {"baseline", summary.baseline}};
  for (const Objective& objective : summary.objectives)
    out["workloads"].push_back({{"name", objective.workload},
                                {"metric", objective.metric()},
                                {"target", objective.target ? Json(*objective.target) : Json()},
                                {"clock", kClocks[objective.clock]},
                                {"budget", objective.limit},
                                {"warnings", summary.workloads[out["workloads"].size()].warnings}});
  out["conditions"] = Json::array();
  for (const ConditionResult& condition : summary.conditions)
    out["conditions"].push_back(to_json(summary, condition, records));
  out["scaling"] = Json::array();
  for (const ScalingResult& scaling : summary.scaling)
    out["scaling"].push_back(json_of(summary, scaling));
  return out;
}

bool is_own_column(const std::string& name) {
  static const std::set<std::string> kColumns = [] {
    std::istringstream heads(conditions_csv({}, {}) + trials_csv({}));
    heads.exceptions(std::ios::badbit);  // otherwise a lack of memory would look like the end
    std::set<std::string> out;
    for (std::string line; std::getline(heads, line);) {
      std::istringstream columns(line);
      columns.exceptions(std::ios::badbit);
      for (std::string column; std::getline(columns, column, ',');) out.insert(column);
    }
    return out;
  }();
  return kColumns.contains(name);
}

std::string conditions_csv(const Summary& summary, const std::vector<Record>& records) {
  std::vector<std::string> labels, keys, head = {"workload"};
  for (const ConditionResult& condition : summary.conditions) {
    add_names(labels, condition.labels);
    if (condition.best) add_names(keys, records[*condition.best].point);
  }
  head.insert(head.end(), labels.begin(), labels.end());
  head.insert(head.end(), {"searches", "trials"});
  for (size_t i = 0; i < kStatusCount; ++i) head.push_back(status_name(static_cast<Status>(i)));
  for (const char* clock : kClocks) add_spread_names(head, cat("to_target_", clock));
  add_spread_names(head, "best_metric");
  for (const char* clock : kClocks) add_spread_names(head, cat("gain_", clock));
  head.insert(head.end(), {"gain_pairs", "gain_reached"});
  for (const std::string& key : keys) head.push_back("best_" + key);
  head.push_back("warnings");
  std::string out = row(head);
  for (const ConditionResult& condition : summary.conditions) {
    std::vector<std::string> fields = {summary.objectives[condition.workload].workload};
    add_values(fields, condition.labels, labels);
    fields.insert(fields.end(), {cat(condition.searches.size()), cat(condition.records.size())});
    for (const size_t count : condition.counts) fields.push_back(cat(count));
    for (const Spread& spread : condition.to_target) add_spread(fields, spread);
    add_spread(fields, condition.best_metric);
    for (const Spread& spread : condition.gain) add_spread(fields, spread);
    fields.insert(fields.end(), {cat(condition.gain[0].count), cat(condition.gain_reached)});
    add_values(fields, condition.best ? records[*condition.best].point : Json(), keys);
    std::string warnings;
    for (const std::string& warning : condition.warnings)
      warnings += (warnings.empty() ? "" : "; ") + warning;
    fields.push_back(warnings);
    out += row(fields);
  }
  return out;
}

std::string trials_csv(const std::vector<Record>& records) {
  std::vector<std::string> labels, keys, head = {"workload"};
  for (const Record& record : records) {
    add_names(labels, record.condition);
    add_names(keys, record.point);
  }
  head.insert(head.end(), labels.begin(), labels.end());
  head.insert(head.end(), {"search", "trial", "seed", "status"});
  head.insert(head.end(), keys.begin(), keys.end());
  add_clock_names(head, "to_target_");
  head.push_back("best_metric");
  add_clock_names(head, "best_at_");
  head.push_back("final_metric");
  add_clock_names(head, "spent_");
  head.insert(head.end(), {"device_wait_share", "noise_scale", "device", "host", "time", "version",
                           "digest", "error"});
  std::string out = row(head);
  for (const Record& record : records) {
    std::vector<std::string> fields = {record.workload};
    add_values(fields, record.condition, labels);
    fields.insert(fields.end(), {cat(record.search), cat(record.trial), cat(record.seed),
                                 status_name(record.status)});
    add_values(fields, record.point, keys);
    add_clock(fields, record.to_target);
    fields.push_back(exact_number(record.best_metric));
    add_clock(fields, record.best_at);
    fields.push_back(exact_number(record.final_metric));
    add_clock(fields, record.spent);
    fields.push_back(exact_number(record.device_wait_share));
    fields.push_back(record.noise_scale ? exact_number(*record.noise_scale) : "");
    fields.insert(fields.end(), {record.device, record.host, record.time, record.version,
                                 record.digest, record.error});
    out += row(fields);
  }
  return out;
}

}  // namespace etr::study
