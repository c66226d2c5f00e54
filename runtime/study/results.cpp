// What is told of a study: events and conditions as JSON.
#include <filesystem>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "study/runner.h"

namespace etr::study {

Json condition_result(const Workload& workload, const Condition& condition,
                      const std::vector<Standing>& searches) {
  uint64_t trials = 0, feasible = 0, reached = 0;
  Json to_target = Json::array(), metrics = Json::array(), warnings = Json::array();
  const Record* best = nullptr;
  for (size_t i = 0; i < searches.size(); ++i) {
    const Standing& search = searches[i];
    trials += search.records().size();
    feasible += search.feasible();
    reached += search.reached();
    to_target.push_back(search.fewest() ? Json(*search.fewest()) : Json());
    double metric = kNone;
    for (const Record& record : search.records())
      if (is_feasible(record.status) && workload.goal.is_better(record.best_metric, metric))
        metric = record.best_metric;
    metrics.push_back(metric);
    best = better_of(workload, best, search.best(workload));
    if (search.records().size() == condition.trials)
      for (const std::string& warning : warnings_of(workload, condition, search))
        warnings.push_back(searches.size() > 1 ? cat("search ", i, ": ", warning) : warning);
  }
  return {{"workload", workload.name},
          {"labels", condition.labels},
          {"name", condition.name},
          {"metric", workload.goal.accuracy ? "accuracy" : "loss"},
          {"target", workload.goal.target ? Json(*workload.goal.target) : Json()},
          {"clock", workload.budget.clock},
          {"trials", trials},
          {"feasible", feasible},
          {"reached", reached},
          {"to_target", std::move(to_target)},
          {"best_metric", std::move(metrics)},
          {"best_point", best ? best->point : Json()},
          {"warnings", std::move(warnings)}};
}

std::vector<Record> records_of(const Study& study, const std::string& folder) {
  std::map<std::pair<std::string, std::string>, const Condition*> known;
  for (const Workload& workload : study.workloads())
    for (const Condition& condition : workload.conditions)
      known[{workload.name, label_key(condition.labels)}] = &condition;
  std::vector<Record> out = read_records((std::filesystem::path(folder) / kRecordsFile).string());
  std::erase_if(out, [&](const Record& record) {
    const auto found = known.find({record.workload, label_key(record.condition)});
    return found == known.end() || record.search >= found->second->searches ||
           record.trial >= found->second->trials;
  });
  return out;
}

Json results(const Study& study, const std::string& folder) {
  const std::vector<Record> records = records_of(study, folder);
  Json out = Json::array();
  for (const Workload& workload : study.workloads())
    for (const Condition& condition : workload.conditions) {
      std::vector<Standing> searches(condition.searches);
      const std::string key = label_key(condition.labels);
      for (const Record& record : records)
        if (record.workload == workload.name && label_key(record.condition) == key)
          searches[record.search].add(workload, record);
      out.push_back(condition_result(workload, condition, searches));
    }
  return out;
}

Json to_json(const Event& event, const Study& study) {
  static constexpr const char* kKinds[] = {"progress", "trial", "condition", "end"};
  Json out{{"kind", kKinds[static_cast<int>(event.kind)]},
           {"done", event.done},
           {"total", event.total},
           {"resumed", event.resumed},
           {"running", event.running},
           {"parallel", event.parallel},
           {"seconds", event.seconds},
           {"seconds_left", event.seconds_left},
           {"workload", event.workload},
           {"condition", event.condition},
           {"best_to_target", event.best_to_target ? Json(*event.best_to_target) : Json()},
           {"best_metric", event.best_metric}};
  for (const Workload& workload : study.workloads())
    if (workload.name == event.workload) {
      out["clock"] = workload.budget.clock;
      out["metric"] = workload.goal.accuracy ? "accuracy" : "loss";
    }
  if (event.record) out["trial"] = to_json(*event.record);
  if (!event.result.is_null()) out["result"] = event.result;
  return out;
}

}  // namespace etr::study
