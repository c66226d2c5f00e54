// classes.txt: the names of the classes, a line each, in the order of their numbers.
#pragma once

#include <string>
#include <vector>

namespace etr::sources {

// Error(corrupt_data) for an empty or repeated name.
std::vector<std::string> read_class_names(const std::string& path);

// Error(invalid_argument) for a name with a line break, Error(io).
// Error(invalid_argument) for a name that a line cannot hold.
void check_class_names(const std::vector<std::string>& names);
void write_class_names(const std::string& path, const std::vector<std::string>& names);

}  // namespace etr::sources
