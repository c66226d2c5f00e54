// Names in several lines.
#pragma once

#include <string>
#include <vector>

namespace etr::plot {

// The text in lines that are no wider than `width`, and at most so many: what does not fit is shortened. Breaks after commas before
// it breaks at spaces, and words only where they are too wide.
std::vector<std::string> wrapped(const std::string& text, double width, size_t most);

}  // namespace etr::plot
