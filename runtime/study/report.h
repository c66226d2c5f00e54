// Writes a study's report: a page, figures and tables.
#pragma once

#include <string>
#include <vector>

#include "study/outline.h"
#include "study/records.h"

namespace etr::study {

// Writes into `folder`, the study's, which is made if missing:
//   report.html       self-contained: what was run, failures and missed targets, tables, figures
//   figures/NAME.svg  each figure for print, and figures/NAME.csv, its numbers
//   results.json      results by condition, where scaling ends, and the figures' names
//   conditions.csv, trials.csv
// Records may cover a part of the study, or nothing. Removes the files of figures that the previous
// report there made and this one does not. Before anything is written, throws Error(state) if the
// folder holds something else or another study's trials (check_folder() in study/folder.h), and
// Error(invalid_argument) for 'figures' that cannot be made (study/figures.h). Error(io).
void write_study_report(const Outline& study, const std::vector<Record>& records,
                        const std::string& folder);

}  // namespace etr::study
