// Describes what the samples of a shared cache are made from, and compares such descriptions.
#pragma once

#include <string>

#include "core/json_fwd.h"

namespace etr::pipeline {

// Returns {"stages": [{NAME: options}, ...], "data", "changed"}: the stages before the cache, as
// Pipeline records them, and what Source reports. Leaves out options that name locations, and the
// options of serial stages, which do not change samples.
Json cache_upstream(const Json& stages, Json data, Json changed);

// Describes the first difference; "" if there is none.
std::string upstream_difference(const Json& held, const Json& now);

// Returns whether the stages call functions of the program. Their names do not show whether a
// function has changed.
bool calls_functions(const Json& stages);

// Makes `folder` a cache of `upstream`, or checks that it is one. Throws Error(state) that names
// the difference, Error(corrupt_data) that names the damage, or Error(io) if the folder cannot be
// created. Returns the identity of the upstream: 32 bytes.
std::string claim_cache_folder(const std::string& folder, const Json& upstream);

}  // namespace etr::pipeline
