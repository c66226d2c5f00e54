// What the samples of a shared cache are made of, and whether two caches hold the same.
#pragma once

#include <string>

#include "core/json_fwd.h"

namespace etr::pipeline {

// {"stages": [{NAME: options}, ...], "data", "changed"}: the stages in front of the cache, as Pipeline writes them down, and
// what Source says. Options that name places are left out, and so are those of serial stages, which change no sample.
Json cache_upstream(const Json& stages, Json data, Json changed);

// The first difference, in words; "" where there is none.
std::string upstream_difference(const Json& held, const Json& now);

// Whether the stages call functions of the program, which nothing tells from other functions.
bool calls_functions(const Json& stages);

// Makes `folder` a cache of `upstream`, or checks that it is one. Error(state) names what differs and Error(corrupt_data) what is
// damaged; Error(io) where it cannot be made. Returns what names the upstream: 32 bytes.
std::string claim_cache_folder(const std::string& folder, const Json& upstream);

}  // namespace etr::pipeline
