// Axes: the range that data need, values to pixels, ticks.
#pragma once

#include <string>
#include <vector>

#include "plot/figure.h"

namespace etr::plot {

struct Extent {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool empty() const { return low > high; }
  void add(double value);  // infinities and NaN are passed over
};

// What the axis can show of a panel's data; `from_zero` where bars begin there.
struct Needs {
  Extent values;
  bool from_zero = false;
};
Needs needs_of(const Panel& panel, bool of_x);

// The range of the axis: that of its options, else the needs and some room; for a need of nothing 0 to 1 (1 to 10).
Axis fitted(Axis axis, const Needs& needs);

// Ticks with a text have a grid line; those without are minor.
struct Tick {
  double at;
  std::string text;
};
// `room` is the axis's length in pixels; texts of a horizontal axis stand side by side, so fewer of them fit.
std::vector<Tick> ticks_of(const Axis& axis, double room, bool horizontal);

// Values of a fitted axis to pixels; values beyond its ends are not cut off.
class Mapping {
 public:
  Mapping(const Axis& axis, double first, double last);
  double operator()(double value) const;
  bool shows(double value) const;  // it is a number that the scale can have

 private:
  bool log_;
  double low_, high_, first_, last_;
};

}  // namespace etr::plot
