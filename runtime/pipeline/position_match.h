// Whether a saved position belongs to a pipeline: the same stages over the same data, wherever the data lies now.
#pragma once

#include <string>

#include "core/json_fwd.h"

namespace etr::pipeline {

// `saved` and `now`: {"pipeline": {"seed", "stages": [{NAME: options}, ...]}, "data": what Source::data() gave}. Options that
// a saved stage lacks, of a version that did not have them, have their defaults. Positions of versions that noted no data
// belong to the very paths that they name. Throws Error(invalid_argument) that says what differs.
void check_position(const Json& saved, const Json& now);

// The stage's options in the schema's order, all that it has, but for those that say where data lies.
Json options_without_paths(const std::string& stage, const Json& options);

// A pipeline's spec as a job has it, without the options that say where data lies: its own, and those of its stages.
Json spec_without_paths(Json spec);

// What differs between two lists of stages [{NAME: options}, ...] wherever their data lies, and between what two sources gave as
// Source::data(); "" where nothing does.
std::string stages_difference(const Json& before, const Json& after);
std::string data_difference(const Json& before, const Json& after);

}  // namespace etr::pipeline
