// echotrain study --plan: what a study would run.
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

namespace cli {

// Prints, for a study with labels filled in, as etr_study_json() returns it, the trials of each
// condition, what they search, what each changes, and the most that they may train on.
void print_plan(const nlohmann::ordered_json& study);

// Returns the number of trials of such a study.
int64_t planned_trials(const nlohmann::ordered_json& study);

}  // namespace cli
