// Draws data points.
#pragma once

#include <string>

#include "plot/figure.h"

namespace etr::plot {

struct Spot {
  double x = 0, y = 0;  // in pixels
};

// Returns the class with the colour of a series: "s3", or "s3 hollow".
std::string style_class(const Series& series);

// Draws the marker of a series at a place.
std::string marker(const Series& series, Spot at);

// Draws an arrow head at the end of an axis: up, or to the right with `right`.
std::string beyond_marker(const Series& series, Spot at, bool right);

// Draws a vertical or horizontal whisker between two places, with caps at the `closed` ends.
std::string whisker(Spot low, Spot high, bool low_closed, bool high_closed);

}  // namespace etr::plot
