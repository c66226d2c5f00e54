#include "study/outline.h"

#include "study/labels.h"
#include "study/records.h"
#include "study/study.h"

namespace etr::study {
namespace {

Objective objective_of(const Workload& workload) {
  Objective out;
  out.workload = workload.name;
  out.accuracy = workload.goal.accuracy;
  out.target = workload.goal.target;
  out.clock = clock_index(workload.budget.clock);
  out.limit = workload.budget.limit();
  for (const Condition& condition : workload.conditions) {
    out.spaces.emplace(label_key(condition.labels), condition.space);
    out.planned.emplace(label_key(condition.labels), condition.trials * condition.searches);
    if (condition.momentum) out.momenta.emplace(label_key(condition.labels), *condition.momentum);
  }
  return out;
}

}  // namespace

Outline outline_of(const Study& study) {
  Outline out;
  out.name = study.name();
  out.description = study.json().value("description", std::string());
  out.seed = study.seed();
  for (const Workload& workload : study.workloads())
    out.objectives.push_back(objective_of(workload));
  out.baseline = study.json().value("baseline", Json());
  out.figures = study.json().value("figures", Json());
  return out;
}

}  // namespace etr::study
