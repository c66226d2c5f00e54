// How long the trials of a study take: what is expected of those that are left.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "study/trial_job.h"

namespace etr::study {

class Durations {
 public:
  void add(const Place& place, double seconds);

  // The mean of the condition's trials so far; where it has none, of its workload's; where that has none, of all. kNone before the first.
  double expected(const Place& place) const;

 private:
  struct Sum {
    double seconds = 0;
    uint64_t trials = 0;

    void add(double more) { seconds += more, ++trials; }
    double mean() const { return seconds / static_cast<double>(trials); }
  };

  std::map<std::pair<size_t, size_t>, Sum> of_condition_;
  std::map<size_t, Sum> of_workload_;
  Sum all_;
};

}  // namespace etr::study
