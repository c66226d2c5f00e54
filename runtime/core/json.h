// The JSON type of the runtime (nlohmann-json). Headers should include core/json_fwd.h instead,
// because this one is slow to compile.
#pragma once

#include "core/json_assert.h"  // before the library

#include <nlohmann/json.hpp>

#include "core/json_fwd.h"

// The library's own comparison with a literal makes a JSON value of it within a noexcept function:
// where the host has no memory left, that would end the process.
namespace nlohmann {

inline bool operator==(const ordered_json& json, const char* text) noexcept {
  const auto* string = json.get_ptr<const ordered_json::string_t*>();
  return string && *string == text;
}

}  // namespace nlohmann
