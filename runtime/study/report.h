// What a study shows: a page, its figures and its tables.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "study/records.h"

namespace etr::study {

// Writes into `folder`, which is made if it is missing:
//   report.html       self-contained: what was run, what did not get there, tables, figures
//   figures/NAME.svg  each figure for print, and figures/NAME.csv, the numbers that it shows
//   results.json      results by condition, and where scaling ends
//   conditions.csv, trials.csv
// Of `study`, the study's file, it reads name, description, seed, goal, budget, search, workloads, baseline and figures; none of them has
// to be there. Records may be of a part of the study, or none. Files of figures that an earlier report had and this one has not
// are removed. Error(invalid_argument) for 'figures' that cannot be made (study/figures.h), before anything is written;
// Error(io).
void write_study_report(const Json& study, const std::vector<Record>& records,
                        const std::string& folder);

}  // namespace etr::study
