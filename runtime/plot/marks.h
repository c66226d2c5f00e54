// Draws data points.
#pragma once

#include <string>

#include "plot/figure.h"
#include "plot/shapes.h"

namespace etr::plot {

// Returns the class with the colour of a series: "s3", or "s3 hollow".
std::string style_class(const Series& series);

// Draws the marker of a series at a place; `size` is relative to the usual one.
std::string marker(const Series& series, Spot at, double size = 1);

// Draws the outline of a series' marker around `count` markers that are at about the same place, so
// that all of them can be seen.
std::string nested_marker(const Series& series, Spot at, size_t count);

// Draws an open arrow head, unlike any marker, with its tip at a place: up, or to the right with
// `right`.
std::string arrow_head(Spot tip, bool right);

// Draws a vertical or horizontal whisker between two places, with a cap at the low end and, if it
// is closed, at the high end. `cap` is half of a cap's length.
constexpr double kCap = 3.5;
std::string whisker(Spot low, Spot high, bool high_closed, double cap = kCap);

}  // namespace etr::plot
