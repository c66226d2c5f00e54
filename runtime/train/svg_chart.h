// Line charts as SVG text.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace etr::train {

struct Series {
  std::string name;
  std::string color;  // CSS
  std::vector<std::pair<double, double>> points;
};

struct ChartOptions {
  std::string title, x_label;
  double y_min = 0, y_max = 1;  // y is a share, labelled in per cent
  double target = 0;            // a dashed line; 0: none
  bool fill = false;            // shade below the lines
};

std::string svg_chart(const std::vector<Series>& series, const ChartOptions& options);

// "12,300" style numbers for axes and tables: at most `digits` decimals, thousands separated.
std::string number_text(double value, int digits = 0);

std::string html_escape(const std::string& text);

}  // namespace etr::train
