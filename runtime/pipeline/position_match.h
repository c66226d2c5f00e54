// Checks whether a saved position belongs to a pipeline: the same stages and the same data,
// wherever the data is now.
#pragma once

#include <string>

#include "core/json_fwd.h"

namespace etr::pipeline {

// `saved` and `now`: {"pipeline": {"seed", "stages": [{NAME: options}, ...]}, "data": from
// Source::data()}. Options missing in a saved stage, from a version that lacked them, have their
// defaults. Positions from versions that did not record data require unchanged paths. Throws
// Error(invalid_argument) that says what differs.
void check_position(const Json& saved, const Json& now);

// The stage's options in the schema's order, all with their values or defaults, without those that
// name locations.
Json options_without_paths(const std::string& stage, const Json& options);

// A pipeline's spec, as in a job, without the options that name locations, both its own and its
// stages'.
Json spec_without_paths(Json spec);

// The difference between two lists of stages [{NAME: options}, ...], ignoring locations, and
// between two results of Source::data(); "" if there is none.
std::string stages_difference(const Json& before, const Json& after);
std::string data_difference(const Json& before, const Json& after);

}  // namespace etr::pipeline
