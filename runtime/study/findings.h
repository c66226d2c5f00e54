// Draws conclusions from results: where scaling ends, and warnings.
#pragma once

#include <vector>

#include "study/summary.h"

namespace etr::study {

// Finds where scaling with the batch size ends, and what predicts it, for conditions that differ in
// nothing else and have at least three sizes.
void find_scaling(Summary& summary, const std::vector<Record>& records);

// Adds warnings: few feasible trials, targets not reached, best points at the border of their
// space.
void find_warnings(Summary& summary, const std::vector<Record>& records);

}  // namespace etr::study
