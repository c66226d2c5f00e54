// Estimates how long the remaining trials of a study take.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "study/trial_job.h"

namespace etr::study {

class Durations {
 public:
  void add(const Place& place, double seconds);

  // Returns the mean of the condition's trials so far; if there are none, of its workload's, else
  // of all trials. kNone before the first one.
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
