// How the trials of one search stand: what early stopping and progress go by.
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

  // Whether the rule ends a trial that is at `at`, with its best metric so far.
  std::optional<Status> verdict(const Workload& workload, const CurvePoint& at, double best) const;

  const std::vector<Record>& records() const { return records_; }
  std::optional<double> fewest() const { return fewest_; }  // to the target, on the budget's clock

  // The best feasible trial, as is_better_trial() has it. nullptr: none.
  const Record* best(const Workload& workload) const;

 private:
  bool is_hopeless(const Workload& workload, const CurvePoint& at, double best) const;

  std::vector<Record> records_;
  std::optional<double> fewest_;
};

// The better one of two trials. Either may be nullptr; nullptr where neither is feasible.
const Record* better_of(const Workload& workload, const Record* one, const Record* other);

}  // namespace etr::study
