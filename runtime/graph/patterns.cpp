#include "graph/patterns.h"

#include <algorithm>

#include "core/error.h"
#include "core/options.h"
#include "core/text.h"

namespace etr::graph {

bool any_matches(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, name); });
}

void check_patterns(const char* option, const std::vector<std::string>& patterns,
                    const std::vector<std::string>& names, const char* what) {
  for (const std::string& pattern : patterns)
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string& name) { return matches(pattern, name); }))
      fail(Code::not_found, "model: '", option, "' has '", pattern, "', which is the name of no ",
           what, suggestion(pattern, names));
}

}  // namespace etr::graph
