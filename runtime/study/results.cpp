// What is told of a study: events and conditions as JSON.
#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "study/labels.h"
#include "study/runner.h"
#include "study/summary.h"

namespace etr::study {

Json condition_result(const Study& study, const std::vector<Standing>& searches) {
  std::vector<Record> records;
  for (const Standing& search : searches)
    records.insert(records.end(), search.records().begin(), search.records().end());
  const Summary summary = summarize(outline_of(study), records);
  return to_json(summary, summary.conditions.front(), records);
}

std::vector<Record> records_of(const Study& study, const std::string& folder) {
  struct Known {
    size_t place;  // among all conditions
    const Condition* condition;
  };
  std::map<std::pair<std::string, std::string>, Known> known;
  for (const Workload& workload : study.workloads())
    for (const Condition& condition : workload.conditions)
      known[{workload.name, label_key(condition.labels)}] = {known.size(), &condition};
  using Rank = std::tuple<size_t, uint64_t, uint64_t>;
  std::vector<std::pair<Rank, Record>> found;
  for (Record& record : read_records((std::filesystem::path(folder) / kRecordsFile).string())) {
    const auto of = known.find({record.workload, label_key(record.condition)});
    if (of == known.end() || record.search >= of->second.condition->searches ||
        record.trial >= of->second.condition->trials)
      continue;
    const Rank rank{of->second.place, record.search, record.trial};
    found.emplace_back(rank, std::move(record));
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Record> out;
  for (auto& [place, record] : found) out.push_back(std::move(record));
  return out;
}

Json results(const Study& study, const std::string& folder) {
  const std::vector<Record> records = records_of(study, folder);
  return to_json(summarize(outline_of(study), records), records)["conditions"];
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
