// Names with wildcards, as the system's shell knows them: *, ? and [...] stand for characters other
// than '/'.
#pragma once

#include <string>
#include <vector>

namespace etr::platform {

bool matches_pattern(const std::string& name, const std::string& pattern);

// Returns the files and folders that match, sorted; folders end with '/'. Throws Error(io) if a
// folder cannot be listed.
std::vector<std::string> matching_paths(const std::string& pattern);

}  // namespace etr::platform
