// The legend of all panels of a figure.
#pragma once

#include <string>
#include <vector>

#include "plot/figure.h"

namespace etr::plot {

struct LegendEntry {
  std::string name;
  std::string swatch;  // SVG, 26 x 12 pixels
};

// Returns each name once, in order: series, references, ranges. Empty if there is only one series
// and nothing to compare it with.
std::vector<LegendEntry> legend_of(const Figure& figure);

std::string swatch_of(const Series& series);

// Draws the legend of a file, `width` pixels wide; `height` receives its height.
std::string drawn_legend(const std::vector<LegendEntry>& entries, double left, double width,
                         double& height);

}  // namespace etr::plot
