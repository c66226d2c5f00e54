// Colours and strokes of figures.
#pragma once

#include <string>

namespace etr::plot {

// Returns the rules for the contents of an element of class `plot`, with CSS variables or light
// colours as such.
std::string plot_rules(bool variables);

// Returns the variables: light colours, and dark ones for readers who prefer them.
std::string plot_variables();

}  // namespace etr::plot
