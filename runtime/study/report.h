// What a study shows: a page, its figures and its tables.
#pragma once

#include <string>
#include <vector>

#include "study/outline.h"
#include "study/records.h"

namespace etr::study {

// Writes into `folder`, the study's or a new one, which is made if it is missing:
//   report.html       self-contained: what was run, failures and missed targets, tables, figures
//   figures/NAME.svg  each figure for print, and figures/NAME.csv, the numbers that it shows
//   results.json      results by condition, where scaling ends, and the figures' names
//   conditions.csv, trials.csv
// Records may be of a part of the study, or none. The files of figures that the last report there has made and this one does not are
// removed. Error(state) where the folder holds something else, or another study's trials (check_folder() in study/folder.h);
// Error(invalid_argument) for 'figures' that cannot be made (study/figures.h); both before anything is written. Error(io).
void write_study_report(const Outline& study, const std::vector<Record>& records,
                        const std::string& folder);

}  // namespace etr::study
