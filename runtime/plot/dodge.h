// Moves series apart that have points at the same places.
#pragma once

#include <set>
#include <vector>

#include "plot/figure.h"

namespace etr::plot {

// Returns how far each series is moved along the axis of its conditions, in pixels: `step` from one
// to the next, or less, so that no point seems to have another one's place. `places` has those of
// all points. Series whose points meet no other series' points are not moved.
std::vector<double> dodge_offsets(const Panel& panel, const std::set<double>& places, double step);

// Returns whether markers stay where they are if whiskers are moved, in all of the figure's panels.
// A marker that is moved seems to lie above or below a curve.
bool markers_stay(const Figure& figure);

// Returns whether no other series has a point there.
bool is_alone(const Panel& panel, size_t series, double x);

}  // namespace etr::plot
