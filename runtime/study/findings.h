// What results say beyond their numbers.
#pragma once

#include <vector>

#include "study/summary.h"

namespace etr::study {

// Where scaling with the batch size ends, for conditions that differ in nothing else and have three sizes or more.
void find_scaling(Summary& summary);

// What to be wary of: few feasible trials, targets that were not reached, best points at the border of their space.
void find_warnings(Summary& summary, const std::vector<Record>& records);

}  // namespace etr::study
