// Which ranks form which part when a group is split.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace etr::exchange {

struct Choice {
  int32_t colour, key;
};

// Returns the ranks that chose the same colour as `rank`, ordered by key, then by rank; none for a
// negative colour.
inline std::vector<int> members(const std::vector<Choice>& choices, int rank) {
  std::vector<int> out;
  const auto at = [&](int r) { return choices[static_cast<size_t>(r)]; };
  if (at(rank).colour < 0) return out;
  for (int r = 0; r < static_cast<int>(choices.size()); ++r)
    if (at(r).colour == at(rank).colour) out.push_back(r);
  std::stable_sort(out.begin(), out.end(), [&](int a, int b) { return at(a).key < at(b).key; });
  return out;
}

// Returns the index of `rank` in `ranks`.
inline int place(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

}  // namespace etr::exchange
