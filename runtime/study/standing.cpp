#include "study/standing.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"

namespace etr::study {
namespace {

constexpr size_t kMedianOf = 5;      // finished trials needed before any is stopped by their median
constexpr double kMedianFrom = 0.2;  // of the budget

// Returns the best metric of a trial's evaluations up to a clock value; NaN: it had none by then.
double best_until(const Workload& workload, const Record& record, double clock) {
  double best = kNone;
  for (const CurvePoint& point : record.curve) {
    if (read_clock(point.at, workload.budget.clock) > clock) break;
    const double metric = metric_at(point, workload.goal.accuracy);
    if (is_better(metric, best, workload.goal.accuracy)) best = metric;
  }
  return best;
}

// Returns whether the trial was stopped earlier, so that its metric at `clock` is unknown. One that
// reached the target needs no more.
bool ended_before(const Workload& workload, const Record& record, double clock) {
  if (record.to_target || record.curve.empty()) return false;
  const std::string& name = workload.budget.clock;
  return std::max(read_clock(record.spent, name), read_clock(record.curve.back().at, name)) < clock;
}

}  // namespace

void Standing::add(const Workload& workload, const Record& record) {
  records_.push_back(record);
  if (!record.to_target) return;
  const double clock = read_clock(*record.to_target, workload.budget.clock);
  fewest_ = std::min(fewest_.value_or(clock), clock);
}

std::optional<Status> Standing::verdict(const Workload& workload, const CurvePoint& at,
                                        double best) const {
  // The next evaluation is the first that could reach the target, and comes after this one.
  if (workload.stop_early == StopRule::slower && fewest_ &&
      read_clock(at.at, workload.budget.clock) >= *fewest_)
    return Status::slower;
  if (workload.stop_early == StopRule::median && is_pruned(workload, at, best))
    return Status::pruned;
  return std::nullopt;
}

bool Standing::is_pruned(const Workload& workload, const CurvePoint& at, double best) const {
  const double clock = read_clock(at.at, workload.budget.clock);
  if (clock < kMedianFrom * workload.budget.limit()) return false;
  const bool accuracy = workload.goal.accuracy;
  std::vector<double> others;
  for (const Record& record : records_) {
    if (!is_feasible(record.status) || ended_before(workload, record, clock)) continue;
    const double metric = best_until(workload, record, clock);
    if (!std::isnan(metric)) others.push_back(metric);
  }
  if (others.size() < kMedianOf) return false;
  // If their number is even, takes the worse of the middle two: a trial is stopped only if both
  // are better.
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
  std::nth_element(others.begin(), middle, others.end(),
                   [&](double one, double other) { return is_better(one, other, accuracy); });
  return is_better(*middle, best, accuracy);
}

const Record* better_of(const Workload& workload, const Record* one, const Record* other) {
  const auto counts = [](const Record* record) { return record && is_feasible(record->status); };
  if (!counts(one) || !counts(other)) return counts(one) ? one : counts(other) ? other : nullptr;
  const size_t clock = clock_index(workload.budget.clock);
  return is_better_trial(*other, *one, clock, workload.goal.accuracy) ? other : one;
}

const Record* Standing::best(const Workload& workload) const {
  const Record* best = nullptr;
  for (const Record& record : records_) best = better_of(workload, best, &record);
  return best;
}

}  // namespace etr::study
