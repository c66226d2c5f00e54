// What data points look like.
#pragma once

#include <string>

#include "plot/figure.h"

namespace etr::plot {

struct Spot {
  double x = 0, y = 0;  // in pixels
};

// "s3", or "s3 hollow": the class that has the colour of a series.
std::string style_class(const Series& series);

// The marker of a series' style around a place.
std::string marker(const Series& series, Spot at);

// An arrow head at the end of an axis: up, or (`right`) to the right.
std::string beyond_marker(const Series& series, Spot at, bool right);

// A whisker between two places on one vertical or horizontal line; caps at those ends that are `closed`.
std::string whisker(Spot low, Spot high, bool low_closed, bool high_closed);

}  // namespace etr::plot
