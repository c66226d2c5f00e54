#include <cmath>

#include "core/error.h"
#include "core/exact_number.h"
#include "plot/panel.h"
#include "plot/svg.h"
#include "plot/text.h"

namespace etr::plot {
namespace {

std::string value(const Axis& axis, double number) {
  if (axis.scale != Scale::category) return exact_number(number);
  const double nearest = std::round(number);
  const bool known = nearest >= 0 && nearest < static_cast<double>(axis.categories.size());
  return known ? csv_field(axis.categories[static_cast<size_t>(nearest)]) : exact_number(number);
}

void add_points(std::string& out, const std::string& name, const Panel& panel,
                const Series& series) {
  for (const Point& point : series.points)
    out += cat(csv_field(name), ",", csv_field(series.name), ",", value(panel.x, point.x), ",",
               value(panel.y, point.y), ",", exact_number(point.low), ",", exact_number(point.high),
               "\n");
}

}  // namespace

std::string csv(const Figure& figure) {
  std::string out = "panel,series,x,y,low,high\n";
  for (size_t i = 0; i < figure.panels.size(); ++i)
    for (const Series& series : figure.panels[i].series)
      add_points(out, panel_name(figure, i), figure.panels[i], series);
  return out;
}

}  // namespace etr::plot
