// classes.txt: the names of the classes, one per line, in the order of their numbers.
#pragma once

#include <string>
#include <vector>

namespace etr::sources {

// Throws Error(corrupt_data) for an empty or duplicate name.
std::vector<std::string> read_class_names(const std::string& path);

// Both throw Error(invalid_argument) for a name with a line break; writing also throws Error(io).
void check_class_names(const std::vector<std::string>& names);
void write_class_names(const std::string& path, const std::vector<std::string>& names);

}  // namespace etr::sources
