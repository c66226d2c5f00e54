// Names that programs and jobs choose: of fields and of functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace etr::pipeline {

constexpr size_t kMaxNameBytes = 1000;

// A name has 1 to kMaxNameBytes bytes of UTF-8 and no control characters: it stands in messages, in JSON, in saved positions and in
// weight files. Error(invalid_argument) otherwise; `what` is what has the name ("a field").
void check_name(std::string_view name, std::string_view what);

}  // namespace etr::pipeline
