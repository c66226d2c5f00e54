// The labels of a study's conditions as text. Depends only on the standard library and the JSON
// library, because the command line includes this header too.
#pragma once

#include "core/json_assert.h"  // before the library

#include <nlohmann/json.hpp>
#include <string>

#include "core/exact_number.h"

namespace etr {

// Returns a value as names of conditions, reports and "${label}" show it: "none", "0.1", "100000".
inline std::string label_text(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? exact_number(value.get<double>()) : value.dump();
}

// "variant=none, factor=1"
inline std::string labels_text(const nlohmann::ordered_json& labels) {
  std::string out;
  for (const auto& [name, value] : labels.items())
    out += (out.empty() ? "" : ", ") + name + "=" + label_text(value);
  return out;
}

// Replaces "${label}" by the label's value. Other names stay as they are.
inline std::string with_labels(std::string text, const nlohmann::ordered_json& labels) {
  for (const auto& [label, value] : labels.items()) {
    const std::string name = "${" + label + "}", filled = label_text(value);
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += filled.size())
      text.replace(at, name.size(), filled);
  }
  return text;
}

}  // namespace etr
