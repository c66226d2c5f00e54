// Numbers as text that reads back exactly. Depends only on the standard library, because the
// command line includes this header too.
#pragma once

#include <charconv>
#include <cmath>
#include <string>

namespace etr {

// Returns the shortest text for the number: "0.1", "1e-05"; "" for NaN, "inf".
inline std::string exact_number(double value) {
  if (std::isnan(value)) return "";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

}  // namespace etr
