#include "study/durations.h"

#include "study/records.h"

namespace etr::study {
namespace {

constexpr double kAssumed = 4;  // trials that took as long as foreseen are assumed, at first

}  // namespace

void Durations::Part::add(const Place& place, double seconds) {
  of_condition[{place.workload, place.condition}].add(seconds);
  of_workload[place.workload].add(seconds);
  all.add(seconds);
}

double Durations::Part::mean(const Place& place) const {
  const auto condition = of_condition.find({place.workload, place.condition});
  if (condition != of_condition.end()) return condition->second.mean();
  const auto workload = of_workload.find(place.workload);
  if (workload != of_workload.end()) return workload->second.mean();
  return all.trials ? all.mean() : kNone;
}

void Durations::add(const Place& place, double seconds, bool is_new) {
  (is_new ? now_ : earlier_).add(place, seconds);
  if (is_new && earlier_.all.trials) foreseen_ += earlier_.mean(place);
}

double Durations::expected(const Place& place) const {
  if (earlier_.all.trials == 0 || now_.of_condition.count({place.workload, place.condition}))
    return now_.mean(place);
  const double assumed = kAssumed * earlier_.all.mean();
  const double pace = assumed > 0 ? (now_.all.seconds + assumed) / (foreseen_ + assumed) : 1;
  return pace * earlier_.mean(place);
}

}  // namespace etr::study
