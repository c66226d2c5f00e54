// Damaged versions of a JSON document.
#pragma once

#include <functional>
#include <string>

#include "core/json.h"

namespace etr::test {

// Calls `trial` for each change: every value in the document replaced by one of another type or
// out of range, and every member of an object removed. `what` describes the change.
inline void for_each_change(const Json& document,
                            const std::function<void(const Json&, const std::string& what)>& trial,
                            const Json::json_pointer& at = Json::json_pointer("")) {
  for (const char* value : {"null", "[]", "{}", "\"x\"", "-1", "18446744073709551615", "1e300",
                            "0.5", "[[]]", "{\"a\": null}"}) {
    Json changed = document;
    changed[at] = Json::parse(value);
    trial(changed, at.to_string() + " = " + value);
  }
  const Json& here = document[at];
  if (here.is_object())
    for (const auto& [key, unused] : here.items()) {
      Json changed = document;
      changed[at].erase(key);
      trial(changed, at.to_string() + " without " + key);
      for_each_change(document, trial, at / key);
    }
  if (here.is_array())
    for (size_t i = 0; i < here.size(); ++i) for_each_change(document, trial, at / i);
}

}  // namespace etr::test
