// Names that programs and jobs choose for fields and functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace etr::pipeline {

constexpr size_t kMaxNameBytes = 1000;

// Checks that a name is 1 to kMaxNameBytes bytes of UTF-8 without control characters, because names
// appear in messages, JSON, saved positions and weight files. Throws Error(invalid_argument)
// otherwise; `what` is what the name belongs to ("a field").
void check_name(std::string_view name, std::string_view what);

}  // namespace etr::pipeline
