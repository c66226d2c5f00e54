// Estimates how long the remaining trials of a study take.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "study/trial_job.h"

namespace etr::study {

class Durations {
 public:
  // Counts a finished trial. `is_new`: it ran just now, and not in an earlier part of the study,
  // when the machine may have been faster or slower.
  void add(const Place& place, double seconds, bool is_new);

  // Returns the mean of the condition's new trials. If there are none, the mean of its earlier
  // trials, scaled by how long new trials of other conditions took compared with earlier ones. A
  // condition without any trials takes the mean of its workload, else of all trials. kNone before
  // the first one.
  double expected(const Place& place) const;

 private:
  struct Sum {
    double seconds = 0;
    uint64_t trials = 0;

    void add(double more) { seconds += more, ++trials; }
    double mean() const { return seconds / static_cast<double>(trials); }
  };

  struct Part {
    std::map<std::pair<size_t, size_t>, Sum> of_condition;
    std::map<size_t, Sum> of_workload;
    Sum all;

    void add(const Place& place, double seconds);
    double mean(const Place& place) const;
  };

  Part earlier_, now_;
  double foreseen_ = 0;  // what the new trials would have taken by the means of earlier ones
};

}  // namespace etr::study
