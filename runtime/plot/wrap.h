// Wraps names into lines.
#pragma once

#include <string>
#include <vector>

namespace etr::plot {

// Returns the text in at most `most` lines, no wider than `width`; shortens what does not fit.
// Prefers breaks after commas to breaks at spaces, and breaks only words that are too wide.
std::vector<std::string> wrapped(const std::string& text, double width, size_t most);

}  // namespace etr::plot
