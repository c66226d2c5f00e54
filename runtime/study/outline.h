// The parts of a study that summaries and reports use.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "study/space.h"

namespace etr::study {

class Study;

// The objective of a workload's trials.
struct Objective {
  std::string workload;
  bool accuracy = false;         // whether the metric is accuracy; otherwise loss
  std::optional<double> target;  // none: the best metric counts
  // The budget's first clock, an index in kClocks: the default for comparisons.
  size_t clock = 0;
  double limit = 0;                         // of the budget on that clock
  std::map<std::string, Space> spaces;      // of its conditions, by label_key()
  std::map<std::string, uint64_t> planned;  // trials of its conditions, by label_key()
  // optimizer.momentum of the conditions in which it is the same for all points
  std::map<std::string, double> momenta;

  const char* metric() const { return accuracy ? "accuracy" : "loss"; }
};

struct Outline {
  std::string name = "Study", description;
  std::optional<uint64_t> seed;
  std::vector<Objective> objectives;  // one per workload, in the study's order
  Json baseline, figures;             // as in the study's file; null if absent
};

Outline outline_of(const Study& study);

}  // namespace etr::study
