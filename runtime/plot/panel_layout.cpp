// The size of panels, and the ranges of their axes.
#include <algorithm>
#include <cmath>

#include "plot/panel.h"
#include "plot/scale.h"
#include "plot/text.h"
#include "plot/wrap.h"

namespace etr::plot {
namespace {

constexpr double kUsualHeight = 200, kCategoryHeight = 21, kTallCategoryHeight = 31;
constexpr double kTop = 10, kTitleLine = 16;
constexpr double kMostNames = 152;  // the largest room for category names
constexpr double kNeverHeight = 24, kNeverWidth = 48;

bool is_never(double value) { return std::isinf(value) && value > 0; }

}  // namespace

bool has_never(const Panel& panel) {
  const bool sideways = panel.y.scale == Scale::category;
  return std::any_of(panel.series.begin(), panel.series.end(), [&](const Series& series) {
    return std::any_of(series.points.begin(), series.points.end(), [&](const Point& point) {
      return is_never(sideways ? point.x : point.y) ||
             (is_never(point.high) && std::isfinite(point.low));
    });
  });
}

double never_room(const Panel& panel) {
  return panel.y.scale == Scale::category ? kNeverWidth : kNeverHeight;
}

std::string panel_name(const Figure& figure, size_t index) {
  const Panel& panel = figure.panels[index];
  bool same = false, y_differs = false, x_differs = false;
  for (size_t i = 0; i < figure.panels.size(); ++i) {
    const Panel& other = figure.panels[i];
    if (i == index || other.title != panel.title) continue;
    same = true;
    y_differs = y_differs || other.y.label != panel.y.label;
    x_differs = x_differs || other.x.label != panel.x.label;
  }
  const std::string label = !same ? "" : y_differs ? panel.y.label : x_differs ? panel.x.label : "";
  return panel.title + (panel.title.empty() || label.empty() ? "" : ", ") + label;
}

std::vector<std::string> title_lines(const Panel& panel, double frame_width) {
  if (panel.title.empty()) return {};
  return wrapped(panel.title, frame_width / 1.2, 2);
}

double frame_height_of(const Panel& panel) {
  if (panel.y.scale != Scale::category) return kUsualHeight;
  const bool two_lines =
      std::any_of(panel.y.categories.begin(), panel.y.categories.end(),
                  [](const std::string& name) { return text_width(name) > kMostNames - 14; });
  return (two_lines ? kTallCategoryHeight : kCategoryHeight) *
         static_cast<double>(std::max<size_t>(2, panel.y.categories.size()));
}

Margins margins_of(const Panel& panel, double frame_height, double never) {
  const bool sideways = panel.y.scale == Scale::category;
  double names = never > 0 && !sideways ? text_width("never") : 0;
  for (const Tick& tick : ticks_of(panel.y, frame_height - (sideways ? 0 : never), false))
    names = std::max(names, text_width(tick.text));
  Margins out;
  out.left = 10 + names + (panel.y.label.empty() ? 4 : 22);
  if (sideways) out.left = std::min(out.left, kMostNames);
  out.right = 14;
  out.top = kTop;
  out.bottom = 44;
  if (panel.x.scale == Scale::category) out.bottom += 28;
  return out;
}

double title_height_of(const Panel& panel, double frame_width) {
  return kTitleLine * static_cast<double>(title_lines(panel, frame_width).size());
}

Figure with_fitted_axes(Figure figure) {
  for (const bool of_x : {true, false}) {
    const auto axis = [&](Panel& panel) -> Axis& { return of_x ? panel.x : panel.y; };
    Needs all;
    for (const Panel& panel : figure.panels) {
      const Needs needs = needs_of(panel, of_x);
      all.values.add(needs.values.low), all.values.add(needs.values.high);
      all.from_zero |= needs.from_zero;
    }
    const bool share = of_x ? figure.share_x : figure.share_y;
    std::vector<Needs> each;
    for (const Panel& panel : figure.panels) each.push_back(share ? all : needs_of(panel, of_x));
    for (size_t i = 0; i < figure.panels.size(); ++i)
      axis(figure.panels[i]) = fitted(axis(figure.panels[i]), each[i]);
  }
  return figure;
}

}  // namespace etr::plot
