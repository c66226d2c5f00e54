// Help texts made from the table of commands.
#pragma once

#include <string>

#include "commands.h"

namespace cli {

std::string usage_of(const Command& command);  // "echotrain eval JOB.json [--set KEY=VALUE]"
std::string help_of(const Command& command);

// Returns the names in the library's schema of this kind ("stages", ..., "job").
std::vector<std::string> schema_names(const std::string& kind);

}  // namespace cli
