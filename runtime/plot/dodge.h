// Moves series apart that have points at the same places.
#pragma once

#include <set>
#include <vector>

#include "plot/figure.h"

namespace etr::plot {

// Returns how far each series is moved along the axis of its conditions, in pixels. Neighbouring
// series are `step` apart, or less if points would otherwise come close to another place. `places`
// holds the places of all points. Series that share no place with another one are not moved.
std::vector<double> dodge_offsets(const Panel& panel, const std::set<double>& places, double step);

// Returns whether only whiskers are moved, in all panels of the figure, and markers stay at their
// numbers. A marker that is moved off its place would seem to lie above or below a curve.
bool markers_stay(const Figure& figure);

// Returns whether no series but this one has a point at `x`.
bool is_alone(const Panel& panel, size_t series, double x);

}  // namespace etr::plot
