// The page of a report: it fits phones and desktops, light and dark themes, and screen readers.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "train/report_runs.h"

namespace etr::train {

// `table` is that of the runs. Leaves out columns and charts without content: those of the target
// if it is 0, those of accuracy if no run classifies, those of evaluations if there are none.
std::string report_page(const std::string& title, const std::vector<ReportedRun>& runs,
                        const Json& table, double target);

}  // namespace etr::train
