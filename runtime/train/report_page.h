// A report as a page: it fits a phone and a desktop, light and dark, and reads well aloud.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "train/report_runs.h"

namespace etr::train {

// `table` is that of the runs. Columns and charts without anything to show are left out: those of the target where it is 0,
// those of accuracy where no run classifies, those of evaluations where there are none.
std::string report_page(const std::string& title, const std::vector<ReportedRun>& runs,
                        const Json& table, double target);

}  // namespace etr::train
