// In which order a stage of a model computes the passes of a step's micro-batches.
#pragma once

#include <string>
#include <vector>

#include "graph/part.h"

namespace etr::parallel {

enum class Schedule {
  gpipe,  // all forward passes, then all backward ones (Huang et al. 2019)
  // Each backward pass as soon as it can be: a stage keeps the activations of as many micro-batches as there are stages behind it,
  // and one (Narayanan et al. 2019).
  one_forward_one_backward,
};

// "gpipe" or "1f1b".
Schedule schedule_named(const std::string& name);

// Of one of `stages`. Backward passes come in the order of micro-batches with either schedule.
std::vector<graph::Pass> training_order(Schedule schedule, int stage, int stages,
                                        int micro_batches);
std::vector<graph::Pass> forward_order(int micro_batches);

}  // namespace etr::parallel
