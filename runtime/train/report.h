// Compares runs by their metrics: a table, and one self-contained HTML file with SVG curves.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"

namespace etr::train {

struct ReportRun {
  std::string name;
  std::string metrics_path;  // metrics.jsonl of the run, or the run's folder
};

// Writes `html_path` and returns the table: [{"name", "time_to_target_s", "fresh_to_target",
// "steps_to_target", "steps", "examples", "fresh", "final_accuracy", "best_accuracy", "final_loss",
// "best_loss", "final_training_loss", "noise_scale", "seconds", "device_wait_share", "speedup",
// "speedup_is_bound", "speedup_range", "runs"}].
//
// Accuracies and losses are those of evaluations, null if there were none. "noise_scale" is the
// last estimate in examples, null if it was not measured. The speed-up is the first run's time to
// target divided by this one's. If the first run never reached the target, its whole time counts
// and the speed-up is a lower bound; if this one never did, or if either time is 0, it is null.
// Runs of the same name are repetitions with other seeds. They share a row of medians, their k-th
// run is compared with the k-th of the first name, and "speedup_range" is [least, most] (null if
// both are equal, or if one never reached the target).
//
// Throws Error(invalid_argument) for a metrics file with neither steps nor evaluations.
Json write_report(const std::string& title, const std::vector<ReportRun>& runs,
                  double target_accuracy, const std::string& html_path);

}  // namespace etr::train
