// The JSON type of the runtime (nlohmann-json). Headers should include core/json_fwd.h instead,
// because this one is slow to compile.
#pragma once

#include "core/json_assert.h"  // before the library

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/json_fwd.h"

// The library's own comparison with a literal makes a JSON value of it within a noexcept function:
// where the host has no memory left, that would end the process.
namespace nlohmann {

inline bool operator==(const ordered_json& json, const char* text) noexcept {
  const auto* string = json.get_ptr<const ordered_json::string_t*>();
  return string && *string == text;
}

}  // namespace nlohmann

namespace etr {

// As erase(), which leaves a destroyed member behind if there is no memory for the key of the next.
inline void remove_member(Json& object, std::string_view key) {
  if (!object.contains(key)) return;
  auto& members = object.get_ref<Json::object_t&>();
  Json::object_t kept;
  kept.reserve(members.size());
  for (auto& [name, value] : members)
    if (name != key) kept.emplace_back(name, std::move(value));
  members.swap(kept);
}

}  // namespace etr
