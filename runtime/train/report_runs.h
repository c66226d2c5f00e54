// What a report shows of a run.
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
    double seconds, step, loss;  // means of a stretch of the run
  };

  std::string name;
  std::vector<Evaluation> evaluations;
  std::vector<Step> steps_taken;
  std::vector<std::pair<double, double>> idle;         // time, share of a stretch
  std::vector<std::pair<double, double>> noise_scale;  // step, examples; where it was measured
  double seconds = 0, steps = 0, examples = 0, fresh = 0, busy = 0;

  bool classifies() const;  // any evaluation has an accuracy
  // The first evaluation with so much accuracy; nullptr where there is none, or no target.
  const Evaluation* reached(double target) const;
};

// A loss or accuracy is NaN where the run's was not finite. Error(invalid_argument) for a file with neither steps nor
// evaluations, Error(corrupt_data) that names the line which is no row of metrics.
ReportedRun load_run(const ReportRun& run);

// The table that write_report() returns: a row for each name.
Json table_of(const std::vector<ReportedRun>& runs, double target);

}  // namespace etr::train
