// Events and conditions of a study as JSON.
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "study/folder.h"
#include "study/labels.h"
#include "study/runner.h"
#include "study/standing.h"
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
  std::map<std::pair<std::string, std::string>, Place> known;  // first trials
  for (size_t w = 0; w < study.workloads().size(); ++w) {
    const Workload& workload = study.workloads()[w];
    for (size_t c = 0; c < workload.conditions.size(); ++c)
      known[{workload.name, label_key(workload.conditions[c].labels)}] = {w, c};
  }
  std::map<Place, Record> found;
  for (Record& record : read_records((std::filesystem::path(folder) / kRecordsFile).string())) {
    const auto of = known.find({record.workload, label_key(record.condition)});
    if (of == known.end()) continue;
    const Place place{of->second.workload, of->second.condition, record.search, record.trial};
    const Condition& condition = study.workloads()[place.workload].conditions[place.condition];
    if (record.search < condition.searches && record.trial < condition.trials)
      found.emplace(place, std::move(record));
  }
  std::map<std::pair<size_t, size_t>, const Record*> best;  // of each condition
  for (const auto& [place, record] : found) {
    const Record*& of = best[{place.workload, place.condition}];
    of = better_of(study.workloads()[place.workload], of, &record);
  }
  // A trial scaled from a base that has a better trial since is to be run again. No base is scaled.
  std::erase_if(found, [&](const auto& entry) {
    const auto& [place, record] = entry;
    const auto& base = study.workloads()[place.workload].conditions[place.condition].base;
    if (!base || record.status == Status::failed) return false;
    const Record* from = best[{place.workload, *base}];
    return !from || trial_spec(study, place, from->point).digest != record.digest;
  });
  std::vector<Record> out;
  for (auto& [place, record] : found) {
    check_unchanged(study, folder, place, record);
    out.push_back(std::move(record));
  }
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
