// Turns nlohmann-json's assertions into exceptions. With assert(), a member that a const document
// lacks would end the host's process or, in a release build, be read out of bounds. Indices into
// lists are not checked: at() does that. To be included before <nlohmann/json.hpp>.
#pragma once

#include <stdexcept>
#include <string>

namespace etr {

[[noreturn]] inline void json_check_failed(const char* condition) {
  throw std::logic_error(std::string("a JSON value is not what this code takes it for: ") +
                         condition);
}

}  // namespace etr

#define JSON_ASSERT(condition) \
  (static_cast<bool>(condition) ? void() : ::etr::json_check_failed(#condition))
