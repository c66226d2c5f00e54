// Expands the entries of a study's 'conditions' to conditions with one value per label.
#pragma once

#include <string>
#include <vector>

#include "study/study.h"

namespace etr::study {

// The settings that all conditions of a workload share.
struct Common {
  std::vector<std::string> set;
  Json labels_for = Json::object();  // 'for' of the workload: label -> list of values
  Json space = Json::object();
  uint64_t trials = 1, searches = 1;
};

// `list` is the study's 'conditions'; `owner` names them in errors. `resolved` receives the list
// with one entry for each combination of the values of 'for'.
std::vector<Condition> conditions_of(const Json& list, const Common& common,
                                     const std::string& owner, Json& resolved);

}  // namespace etr::study
