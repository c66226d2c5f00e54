// Axes: ranges that fit the data, mapping to pixels, ticks.
#pragma once

#include <string>
#include <vector>

#include "plot/figure.h"

namespace etr::plot {

struct Extent {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool empty() const { return low > high; }
  void add(double value);  // ignores infinities and NaN
};

// The range that an axis must show. `from_zero`: there are bars, so it begins at zero.
struct Needs {
  Extent values;
  bool from_zero = false;
};
Needs needs_of(const Panel& panel, bool of_x);

// Returns the axis with a range: its own `from` and `to` where they are set, else the range of the
// needs with some room, or 0 to 1 (logarithmic: 1 to 10) if there are no values.
Axis fitted(Axis axis, const Needs& needs);

// Ticks with a text get a grid line; those without are minor ticks.
struct Tick {
  double at;
  std::string text;
};
// `room` is the axis's length in pixels. The texts of a horizontal axis stand side by side, so
// fewer fit.
std::vector<Tick> ticks_of(const Axis& axis, double room, bool horizontal);

// Maps values of a fitted axis to pixels, without clipping at its ends.
class Mapping {
 public:
  Mapping(const Axis& axis, double first, double last);
  double operator()(double value) const;
  bool shows(double value) const;  // whether the scale can show it

 private:
  bool log_;
  double low_, high_, first_, last_;
};

}  // namespace etr::plot
