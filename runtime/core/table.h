// Lookup in tables of specs (stages, ops, layers, optimizers). Rows have a member `name`.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/options.h"

namespace etr {

// Returns the row with this name. Throws Error(not_found) that suggests the nearest one. `kind` is
// "stage", "op", ...
template <typename Spec>
const Spec& find_in_table(std::span<const Spec* const> table, const char* kind,
                          const std::string& name) {
  std::vector<std::string> names;
  for (const Spec* row : table) {
    if (row->name == name) return *row;
    names.emplace_back(row->name);
  }
  fail(Code::not_found, "there is no ", kind, " '", name, "'", suggestion(name, names));
}

}  // namespace etr
