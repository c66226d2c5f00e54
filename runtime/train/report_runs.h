// The data of a run that a report shows.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/json_fwd.h"

namespace etr::train {

struct ReportRun;

struct ReportedRun {
  struct Evaluation {
    double seconds, step, fresh, accuracy, loss;
  };
  struct Step {
    double seconds, step, loss;  // means over a stretch of the run
  };

  std::string name;
  std::vector<Evaluation> evaluations;
  std::vector<Step> steps_taken;
  std::vector<std::pair<double, double>> idle;         // time, idle share of a stretch
  std::vector<std::pair<double, double>> noise_scale;  // step, examples; only where it was measured
  double seconds = 0, steps = 0, examples = 0, fresh = 0, busy = 0;

  bool classifies() const;  // any evaluation has an accuracy
  // Returns the first evaluation with at least this accuracy; nullptr if there is none, or no
  // target.
  const Evaluation* reached(double target) const;
};

// Loads a run. A loss or accuracy that was not finite is NaN. Error(invalid_argument) for a file
// with neither steps nor evaluations; Error(corrupt_data) names the line that is not a row of
// metrics. An unfinished row at the end of the file is left out.
ReportedRun load_run(const ReportRun& run);

// Returns the table of write_report(), with a row for each name.
Json table_of(const std::vector<ReportedRun>& runs, double target);

}  // namespace etr::train
