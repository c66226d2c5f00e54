// echotrain study --plan: what a study would run.
#pragma once

#include <nlohmann/json.hpp>

namespace cli {

// Of a study with its labels in place, as etr_study_json() gives it: the trials of each condition, what they are searched for,
// what each changes, and the most that they may train on.
void print_plan(const nlohmann::ordered_json& study);

}  // namespace cli
