// Figures as data, to be drawn as SVG. A figure has one or more panels (small multiples) and one
// legend for all.
//
// A drawing shows the numbers that the figure holds; csv() writes the same numbers as a table. NaN
// is left out. +infinity is drawn in a strip at the end of the value axis, apart from the numbers
// and labelled "never"; a whisker that ends at infinity has an arrow head there.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace etr::plot {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// The number of styles with different colours, markers and dashes. Style i + kStyles has the colour
// of style i and another marker.
constexpr int kStyles = 8;

// `category`: a value stands for the name with the nearest index in a list. Values that a
// logarithmic axis cannot show (0, negative) are left out.
enum class Scale { linear, log2, log10, category };

struct Axis {
  std::string label;
  Scale scale = Scale::linear;
  std::vector<std::string> categories;
  double from = kNone, to = kNone;  // NaN: chosen from the data
  bool percent = false;             // values are shares, labelled in per cent
  std::vector<double> at;  // places of ticks; if their texts do not fit, chosen from the range
};

// `low` and `high` are the ends of the whisker: along y, or along x if y is a category.
struct Point {
  double x = 0, y = 0, low = kNone, high = kNone;
  std::string text;  // tooltip; empty: the point's numbers
};

// `line` connects points; `bars` begin at zero; `ticks` are short strokes across the value axis,
// for medians.
enum class Mark { line, points, bars, ticks };

struct Series {
  std::string name;
  int style = 0;
  Mark mark = Mark::line;
  std::vector<Point> points;
  bool star = false;    // draws stars around other markers: the best of many
  bool hollow = false;  // unfilled markers
  int shape = -1;       // the style whose markers are drawn; -1: the series' own
};

// A dashed line or curve for comparison. References of the same kind (`dots` or not) look alike.
struct Reference {
  std::string name;
  std::vector<std::pair<double, double>> line;
  bool dots = false;
};

// A shaded range of y, or of x with `of_x`.
struct Range {
  std::string name;
  double low = 0, high = 0;
  bool of_x = false;
};

// A text beside a point. It is placed so that it covers neither points nor other notes, with a line
// to its point if necessary.
struct Note {
  double x = 0, y = 0;
  std::string text;
  int style = 0;
};

struct Panel {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
  std::vector<Reference> references;
  std::vector<Range> ranges;
  std::vector<Note> notes;
};

struct Figure {
  std::string id;           // unique in the page; letters, digits, '-' and '_'
  std::string title;        // for screen readers; the page shows it outside the drawing
  std::string description;  // for screen readers, in place of the drawing
  std::vector<Panel> panels;
  bool share_x = false, share_y = false;  // all panels use the same range
  // Moves series with whiskers a few pixels apart if they share x. Markers stay at their numbers if
  // a reference curve depends on x, or if there are no whiskers; markers at the same place are then
  // nested.
  bool dodge = false;
};

}  // namespace etr::plot
