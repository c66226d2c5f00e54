// echotrain study --plan: what a study would run.
#pragma once

#include <nlohmann/json.hpp>

namespace cli {

// Prints, for a study with labels filled in, as etr_study_json() returns it, the trials of each
// condition, what they search, what each changes, and the most that they may train on.
void print_plan(const nlohmann::ordered_json& study);

}  // namespace cli
