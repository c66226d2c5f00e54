// The order in which a stage runs the passes of a step's micro-batches.
#pragma once

#include <string>
#include <vector>

#include "graph/part.h"

namespace etr::parallel {

enum class Schedule {
  gpipe,  // all forward passes, then all backward ones (Huang et al. 2019)
  // Each backward pass as early as possible: a stage keeps the activations of at most as many
  // micro-batches as there are stages after it, plus one (Narayanan et al. 2019).
  one_forward_one_backward,
};

// "gpipe" or "1f1b".
Schedule schedule_named(const std::string& name);

// Returns the number of forward passes before the first backward pass, which is also the most
// micro-batches whose activations a stage keeps.
int forward_ahead(Schedule schedule, int stage, int stages, int micro_batches);

// Returns the passes of one of `stages`. Both schedules run backward passes in micro-batch order.
std::vector<graph::Pass> training_order(Schedule schedule, int stage, int stages,
                                        int micro_batches);
std::vector<graph::Pass> forward_order(int micro_batches);

}  // namespace etr::parallel
