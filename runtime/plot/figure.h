// Figures as SVG: what one shows, as data. A figure has one panel or several (small multiples) and one legend for all.
//
// What a figure draws is what it was given: csv() writes the same numbers as a table. A number that is not finite is handled
// as follows. NaN is left out. A value of +infinity ("never reached") stands at the upper end of its axis as an arrow, and a
// whisker that ends there runs up to the frame.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace etr::plot {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// How many styles differ in colour, marker and dashes; series of style i + kStyles have the colour of i and another marker.
constexpr int kStyles = 8;

// `category`: value i stands for the i-th of a list of names, and so does what is nearer to i than to others. Values that a logarithmic axis cannot show (0, negative) are
// left out.
enum class Scale { linear, log2, log10, category };

struct Axis {
  std::string label;
  Scale scale = Scale::linear;
  std::vector<std::string> categories;
  double from = kNone, to = kNone;  // NaN: what the data need
  bool percent = false;             // values are shares, labelled in per cent
  std::vector<double> at;           // ticks stand there, if their texts fit; else where the range suggests
};

// low and high are the ends of its whisker: along y, or along x where y is a category.
struct Point {
  double x = 0, y = 0, low = kNone, high = kNone;
  std::string text;  // shown under the pointer; empty: its numbers
};

// `line` connects points; `bars` begin at zero; `ticks` are short strokes across the axis of values, for medians.
enum class Mark { line, points, bars, ticks };

struct Series {
  std::string name;
  int style = 0;
  Mark mark = Mark::line;
  std::vector<Point> points;
  bool star = false;    // a larger, star-shaped marker: the best of many
  bool hollow = false;  // markers without filling
  int shape = -1;       // of markers: that of another style
};

// A dashed line or curve that data are compared with. Two of a kind (`dots` or not) look alike.
struct Reference {
  std::string name;
  std::vector<std::pair<double, double>> line;
  bool dots = false;
};

// A shaded range, of y or (`of_x`) of x.
struct Range {
  std::string name;
  double low = 0, high = 0;
  bool of_x = false;
};

// A text beside a point. It is placed where it covers neither points nor other notes, with a line to its point if need be.
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
  std::string title;        // read aloud; shown by the page, not within the drawing
  std::string description;  // read aloud instead of the drawing
  std::vector<Panel> panels;
  bool share_x = false, share_y = false;  // all panels have the same range
  bool dodge = false;  // series with whiskers stand a few pixels apart where their x is the same
};

}  // namespace etr::plot
