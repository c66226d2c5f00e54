// The figures of a study's report.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "plot/figure.h"
#include "study/summary.h"

namespace etr::study {

struct StudyFigure {
  std::string name;     // of its files, without an extension
  std::string caption;  // how to read it, and what was left out
  size_t workload = 0;  // place in Summary::objectives
  plot::Figure figure;
};

// What 'figures' and 'baseline' may name, before there are records.
struct WorkloadLabels {
  std::string workload;
  std::vector<Json> labels;  // of each condition
};
// Throws what study_figures() would throw for this study once it has run, and Error(invalid_argument) for a baseline that no
// condition has.
void check_figures(const Outline& study, const std::vector<WorkloadLabels>& workloads);

// Those that the study's 'figures' lists; where it has none, what suits its labels. An entry is an object:
//   kind      to_target: what it took to reach the target (least of a search; median, least and most over searches)
//             best_metric: the best metric within the budget, in the same way
//             scaling: steps to target against batch size, with perfect scaling
//             rate: the best trials' learning rate and effective rate, with linear and square-root slopes
//             spread: every trial of each condition, and their median
//             curves: the metric against fresh examples, steps and seconds, for each condition's best trial
//             trials: where the trials of each condition lay in the space, and what became of them
//   x, series, panel   labels; labels that vary and are not named become part of the series' name
//   clock     fresh, examples, steps or seconds, for to_target and spread
//   baseline  labels of the condition that others are compared with
//   workload  only for this one; otherwise a figure for each
//   name      of its files
// Figures without anything to show are left out. Error(invalid_argument) names an unknown kind, key, label or clock, and the nearest.
std::vector<StudyFigure> study_figures(const Outline& study, const Summary& summary,
                                       const std::vector<Record>& records);

}  // namespace etr::study
