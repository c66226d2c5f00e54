// Patterns of parameters' names, in which * stands for any characters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace etr::graph {

bool any_matches(const std::vector<std::string>& patterns, std::string_view name);

// Throws Error(not_found) for a pattern that matches none of `names`, which are of `what`s;
// suggests the nearest. `option` is the key of the model that holds the patterns.
void check_patterns(const char* option, const std::vector<std::string>& patterns,
                    const std::vector<std::string>& names, const char* what);

}  // namespace etr::graph
