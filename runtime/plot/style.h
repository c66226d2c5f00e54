// Colours and strokes of figures.
#pragma once

#include <string>

namespace etr::plot {

// Rules for what lies in an element of the class `plot`; colours as CSS variables, or written out (light).
std::string plot_rules(bool variables);

// The variables: light ones, and dark ones where the reader prefers them.
std::string plot_variables();

}  // namespace etr::plot
