#include "study/durations.h"

#include "study/records.h"

namespace etr::study {

void Durations::add(const Place& place, double seconds) {
  of_condition_[{place.workload, place.condition}].add(seconds);
  of_workload_[place.workload].add(seconds);
  all_.add(seconds);
}

double Durations::expected(const Place& place) const {
  const auto condition = of_condition_.find({place.workload, place.condition});
  if (condition != of_condition_.end()) return condition->second.mean();
  const auto workload = of_workload_.find(place.workload);
  if (workload != of_workload_.end()) return workload->second.mean();
  return all_.trials ? all_.mean() : kNone;
}

}  // namespace etr::study
