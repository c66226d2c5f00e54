#include "study/outline.h"

#include "core/error.h"
#include "optim/update.h"
#include "study/labels.h"
#include "study/records.h"
#include "study/study.h"
#include "study/trial_job.h"

namespace etr::study {
namespace {

// The momentum of the condition's job, with the values at one end of all ranges.
std::optional<double> momentum_at(const Workload& workload, const Condition& condition,
                                  double end) {
  Json point = Json::object();
  for (const Dimension& dimension : condition.space.dimensions())
    point[dimension.key] = dimension.at(end);
  const train::Job job = trial_job(workload, condition, point, 1);
  const Json options = optim::UpdateSpec(job.optimizer()).options().json();
  const auto found = options.find("momentum");
  if (found == options.end() || !found->is_number()) return {};
  return found->get<double>();
}

// None if points have a momentum of their own, also by a variable of the job, or if the optimizer
// has none.
std::optional<double> fixed_momentum(const Workload& workload, const Condition& condition) try {
  const auto low = momentum_at(workload, condition, 0), high = momentum_at(workload, condition, 1);
  return low == high ? low : std::nullopt;
} catch (const Error&) {  // the study is being checked: its trials' jobs come later
  return {};
}

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
    if (const auto momentum = fixed_momentum(workload, condition))
      out.momenta.emplace(label_key(condition.labels), *momentum);
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
