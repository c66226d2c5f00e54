// What summaries and reports need to know of a study.
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

// What a workload's trials were to reach.
struct Objective {
  std::string workload;
  bool accuracy = false;         // the metric; otherwise loss
  std::optional<double> target;  // none: the best metric counts
  size_t clock =
      0;  // the budget's first, a place in kClocks: what is compared if nothing else is said
  double limit = 0;                     // of the budget on that clock
  std::map<std::string, Space> spaces;  // of its conditions, by label_key()

  const char* metric() const { return accuracy ? "accuracy" : "loss"; }
};

struct Outline {
  std::string name = "Study", description;
  std::optional<uint64_t> seed;
  std::vector<Objective> objectives;  // one a workload, in the order of the study
  Json baseline, figures;             // as the study's file has them; null where it has none
};

Outline outline_of(const Study& study);

}  // namespace etr::study
