// The figures of a study's report.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "plot/figure.h"
#include "study/summary.h"

namespace etr::study {

struct StudyFigure {
  std::string name;     // of its files, without extension
  std::string caption;  // how to read it, and what is left out
  size_t workload = 0;  // index in Summary::objectives
  plot::Figure figure;
};

// The labels that 'figures' and 'baseline' may name. They are known before there are records.
struct WorkloadLabels {
  std::string workload;
  std::vector<Json> labels;  // of each condition
};
// Throws the errors of study_figures(), and Error(invalid_argument) for labels that no condition
// has, for a baseline that matches none, and for a 'scaling' figure without numbers along x.
void check_figures(const Outline& study, const std::vector<WorkloadLabels>& workloads);

// Makes the figures that the study's 'figures' lists, or by default those that suit its labels. An
// entry is an object:
//   kind      to_target: the cost of reaching the target (least of a search; median, least and most
//                        over searches)
//             best_metric: the best metric within the budget, in the same way
//             scaling: steps to target against batch size, with perfect scaling
//             rate: the best trials' learning rate and effective rate, with linear and square-root
//                   slopes
//             spread: every trial of each condition, and the median of the searches' best
//             curves: the metric against fresh examples, steps and seconds, for the best trial of
//                     each condition
//             trials: the place of each condition's trials in the space, and their outcome
//   x, series, panel   labels; other labels that vary become part of the series' name
//   clock     fresh, examples, steps or seconds, for to_target and spread
//   baseline  labels of the condition with which others are compared
//   workload  only for this one; otherwise a figure for each
//   name      of its files
// Leaves out figures with nothing to show, and those with a label that no condition with records
// has. Error(invalid_argument) names an unknown kind, key or clock, and the nearest valid one.
std::vector<StudyFigure> study_figures(const Outline& study, const Summary& summary,
                                       const std::vector<Record>& records);

}  // namespace etr::study
