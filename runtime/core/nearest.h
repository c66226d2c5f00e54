// Suggests a known name for a mistyped one. Depends only on the standard library, because the
// command line includes this header too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace etr {

// The Damerau-Levenshtein distance (optimal string alignment): insertions, deletions, replacements
// and swaps of adjacent letters.
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1), before, older;
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    older = std::exchange(before, row);
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({before[j] + (a[i] != b[j]), row[j] + 1, before[j + 1] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
        row[j + 1] = std::min(row[j + 1], older[j - 1] + 1);
    }
  }
  return row.back();
}

// The largest edit distance of a suggestion for a word of this length.
inline size_t most_edits(size_t letters) {
  return letters < 10 ? std::clamp<size_t>(letters / 2, 1, 3) : letters / 3;
}

// The candidate with the smallest edit distance to `word`, or "" if none is close. If one of the
// two is a prefix of the other, they count as close.
inline std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  constexpr size_t kBeginning = 4;  // letters of a meaningful prefix
  std::string best;
  size_t best_distance = most_edits(word.size()) + 1;
  for (const std::string& candidate : candidates) {
    const bool begins = word.size() >= kBeginning && candidate.starts_with(word);
    const bool goes_on = candidate.size() >= kBeginning && word.starts_with(candidate);
    size_t distance = edit_distance(word, candidate);
    if (begins || goes_on) distance = std::min<size_t>(distance, begins ? 1 : 2);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace etr
