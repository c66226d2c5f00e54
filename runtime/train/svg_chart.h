// Line charts as SVG text. Series use the CSS variables --s0, --s1 and so on of the page's style
// sheet, so that one chart serves light and dark pages.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace etr::train {

struct Series {
  std::string name;
  int style = 0;  // colour and dashes
  std::vector<std::pair<double, double>> points;
};

// The number of different styles; further ones repeat them.
constexpr int kSeriesStyles = 6;

struct ChartOptions {
  std::string id;  // unique in the page
  std::string title, x_label;
  std::string description;  // for screen readers
  bool percent = true;      // y is a share, labelled in per cent
  double y_min = 0, y_max = 1;
  double target = 0;  // a dashed line; 0: none
  bool fill = false;  // shade below the lines
};

std::string svg_chart(const std::vector<Series>& series, const ChartOptions& options);

// Returns the line that represents a series in a legend.
std::string svg_swatch(int style);

}  // namespace etr::train
