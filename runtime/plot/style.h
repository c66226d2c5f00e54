// Colours and strokes of figures.
#pragma once

#include <string>

namespace etr::plot {

// Returns the CSS rules for the contents of an element of class `plot`. Colours are CSS variables,
// or, without `variables`, the light colours themselves.
std::string plot_rules(bool variables);

// Returns the definitions of the variables: light colours, and dark ones for readers who prefer
// them.
std::string plot_variables();

}  // namespace etr::plot
