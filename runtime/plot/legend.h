// One legend for all panels of a figure.
#pragma once

#include <string>
#include <vector>

#include "plot/figure.h"

namespace etr::plot {

struct LegendEntry {
  std::string name;
  std::string swatch;  // SVG, 26 x 12 pixels
};

// Each name once, in order: series, then references, then ranges. Nothing where one series is all there is.
std::vector<LegendEntry> legend_of(const Figure& figure);

std::string swatch_of(const Series& series);

// The legend of a file, `width` pixels wide; `height` is what it took.
std::string drawn_legend(const std::vector<LegendEntry>& entries, double left, double width,
                         double& height);

}  // namespace etr::plot
