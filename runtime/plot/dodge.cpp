#include "plot/dodge.h"

#include <algorithm>
#include <iterator>

namespace etr::plot {
namespace {

bool has_point(const Series& series, double x) {
  return std::any_of(series.points.begin(), series.points.end(),
                     [&](const Point& point) { return point.x == x; });
}

bool meet(const Series& one, const Series& other) {
  return std::any_of(one.points.begin(), one.points.end(),
                     [&](const Point& point) { return has_point(other, point.x); });
}

double room_between(const std::set<double>& places) {
  double room = 24;
  for (auto at = places.begin(); at != places.end(); ++at)
    if (const auto next = std::next(at); next != places.end())
      room = std::min(room, std::max(4.0, 0.5 * (*next - *at)));
  return room;
}

bool has_whisker(const Point& point) { return point.low < point.high; }

bool depends_on_x(const Reference& reference) {
  return std::any_of(reference.line.begin(), reference.line.end(),
                     [&](const auto& at) { return at.second != reference.line.front().second; });
}

}  // namespace

bool markers_stay(const Figure& figure) {
  bool whiskers = false;
  for (const Panel& panel : figure.panels) {
    if (panel.x.scale == Scale::category || panel.y.scale == Scale::category) return false;
    for (const Reference& reference : panel.references)
      if (depends_on_x(reference)) return true;
    for (const Series& series : panel.series)
      whiskers = whiskers || std::any_of(series.points.begin(), series.points.end(), has_whisker);
  }
  return !whiskers;
}

bool is_alone(const Panel& panel, size_t series, double x) {
  for (size_t i = 0; i < panel.series.size(); ++i)
    if (i != series && has_point(panel.series[i], x)) return false;
  return true;
}

std::vector<double> dodge_offsets(const Panel& panel, const std::set<double>& places, double step) {
  const std::vector<Series>& all = panel.series;
  std::vector<size_t> meeting;
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t k = 0; k < all.size(); ++k)
      if (i != k && meet(all[i], all[k])) {
        meeting.push_back(i);
        break;
      }
  std::vector<double> out(all.size(), 0);
  const auto count = static_cast<double>(meeting.size());
  if (count > 1) step = std::min(step, room_between(places) / (count - 1));
  for (size_t i = 0; i < meeting.size(); ++i)
    out[meeting[i]] = (static_cast<double>(i) - (count - 1) / 2) * step;
  return out;
}

}  // namespace etr::plot
