// Lists of strings that programs pass.
#pragma once

#include <string>
#include <vector>

#include "handles.h"

namespace etr::capi {

inline std::vector<std::string> strings_of(const char* const* items, int32_t count,
                                           const char* name) {
  if (count < 0) fail(Code::invalid_argument, "argument 'count' is ", count);
  if (count > 0) required(items, name);
  std::vector<std::string> out;
  for (int32_t i = 0; i < count; ++i) out.emplace_back(&required(items[i], name));
  return out;
}

}  // namespace etr::capi
