// Makes the checks of nlohmann-json exceptions. With assert(), a const document whose member is
// missing would end the host's process, or be read out of bounds in a release build. To be included
// before <nlohmann/json.hpp>.
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
