// The standing of one search's trials, for early stopping and progress.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "study/records.h"
#include "study/study.h"

namespace etr::study {

class Standing {
 public:
  void add(const Workload& workload, const Record& record);

  // Returns the status with which the stop rule ends a trial that is at `at` with this best metric
  // so far; none: it continues.
  std::optional<Status> verdict(const Workload& workload, const CurvePoint& at, double best) const;

  const std::vector<Record>& records() const { return records_; }
  // The least cost of reaching the target so far, on the budget's clock.
  std::optional<double> fewest() const { return fewest_; }

  // Returns the best feasible trial by is_better_trial(); nullptr: none.
  const Record* best(const Workload& workload) const;

 private:
  bool is_pruned(const Workload& workload, const CurvePoint& at, double best) const;

  std::vector<Record> records_;
  std::optional<double> fewest_;
};

// Returns the better of two trials. Either may be nullptr; returns nullptr if neither is feasible.
const Record* better_of(const Workload& workload, const Record* one, const Record* other);

}  // namespace etr::study
