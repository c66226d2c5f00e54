#include "plot/panel.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/format_text.h"
#include "core/markup.h"
#include "plot/dodge.h"
#include "plot/scale.h"
#include "plot/text.h"
#include "plot/wrap.h"

namespace etr::plot {
namespace {

constexpr size_t kMostMarked = 24;  // the most points of a line that get a marker each
constexpr double kNeverGap = 6;     // between the numbers and the strip for infinity
constexpr const char* kNever = "never";
constexpr double kRowMarker = 0.8, kRowCap = 5.5;  // sizes if conditions are rows
constexpr double kMeet = 2.5;  // markers closer than this, in pixels, are nested

std::string text_at(const char* style, const char* anchor, Spot at, const std::string& text) {
  return drawn_text(cat("class='", style, "' text-anchor='", anchor, "'"), at, text);
}

std::string straight(const char* style, Spot from, Spot to) {
  return drawn_line(cat("class='", style, "'"), from, to);
}

std::string value_text(const Axis& axis, double value) {
  const double index = std::max(0.0, std::round(value));
  if (axis.scale == Scale::category && index < static_cast<double>(axis.categories.size()))
    return axis.categories[static_cast<size_t>(index)];
  if (std::isinf(value)) return "never";
  return axis.percent ? format_text("%.6g %%", value * 100) : format_text("%.6g", value);
}

// Returns the part of the frame for numbers, without the strip for infinity.
Box box_of(const PanelPlace& place, bool sideways) {
  Box out = place.frame;
  if (sideways)
    out.width -= place.never;
  else
    out.y += place.never, out.height -= place.never;
  return out;
}

class Drawing {
 public:
  Drawing(const Panel& panel, const PanelPlace& place)
      : panel_(panel),
        place_(place),
        sideways_(panel.y.scale == Scale::category),
        box_(box_of(place, sideways_)),
        x_(panel.x, box_.x, box_.x + box_.width),
        // The first category is at the top.
        y_(panel.y, sideways_ ? box_.y : box_.y + box_.height,
           sideways_ ? box_.y + box_.height : box_.y),
        notes_(box_) {}

  std::string svg() {
    out_ = cat("<clipPath id='", place_.clip_id, "'>", drawn_box("", box_), "</clipPath>");
    offsets_ = dodge_offsets(panel_, places(), place_.dodge);
    never_strip();
    ranges();
    x_axis();
    y_axis();
    references();
    bars();
    lines();
    whiskers();
    points();
    write_notes();
    return out_;
  }

 private:
  double right() const { return box_.x + box_.width; }
  double bottom() const { return box_.y + box_.height; }
  std::string clip() const { return cat(" clip-path='url(#", place_.clip_id, ")'"); }
  bool inside(const Point& point, Spot at) const {
    const bool x_inside = at.x >= box_.x - 0.5 && at.x <= right() + 0.5;
    const bool y_inside = at.y >= box_.y - 0.5 && at.y <= bottom() + 0.5;
    return is_never(point) ? (sideways_ ? y_inside : x_inside) : x_inside && y_inside;
  }

  // Returns where infinity lies along the value axis.
  double never_at() const {
    const double half = (place_.never - kNeverGap) / 2;
    return sideways_ ? right() + kNeverGap + half : place_.frame.y + half;
  }

  void never_strip() {
    if (place_.never <= 0) return;
    const double size = place_.never - kNeverGap;
    const double x = sideways_ ? right() + kNeverGap : box_.x;
    out_ += drawn_box("class='never'", {x, place_.frame.y, sideways_ ? size : box_.width,
                                        sideways_ ? box_.height : size});
    if (sideways_) {
      out_ += straight("axis", {x, bottom()}, {x + size, bottom()}) +
              text_at("tick", "middle", {never_at(), bottom() + 17}, kNever);
      return;
    }
    out_ += straight("axis", {x, place_.frame.y}, {x, place_.frame.y + size});
    if (place_.y_texts) y_text(never_at(), kNever);
  }

  void ranges() {
    for (const Range& range : panel_.ranges) {
      const Mapping& to = range.of_x ? x_ : y_;
      if (!to.shows(range.low) || !to.shows(range.high)) continue;
      const double a = to(range.low), b = to(range.high);
      const double low = std::min(a, b), size = std::max(1.0, std::abs(b - a));
      out_ += drawn_box("class='range'" + clip(), range.of_x ? Box{low, box_.y, size, box_.height}
                                                             : Box{box_.x, low, box_.width, size});
    }
  }

  void x_axis() {
    for (const Tick& tick : ticks_of(panel_.x, box_.width, true)) {
      const double at = x_(tick.at);
      if (panel_.x.scale != Scale::category)
        out_ += straight(tick.text.empty() ? "minor" : "grid", {at, box_.y}, {at, bottom()});
      if (!tick.text.empty() && !meets_never(at, tick.text)) tick_text(at, tick.text);
    }
    out_ += straight("axis", {box_.x, bottom()}, {right(), bottom()});
    const double below = x_text_height();
    if (place_.x_label)
      out_ += text_at("label", "middle", {box_.x + box_.width / 2, bottom() + below + 18},
                      panel_.x.label);
  }

  bool meets_never(double at, const std::string& text) const {
    return place_.never > 0 && sideways_ &&
           at + text_width(text) / 2 + 6 > never_at() - text_width(kNever) / 2;
  }

  double x_text_height() const;

  // Category names use up to three lines.
  void tick_text(double at, const std::string& text);

  void y_axis() {
    for (const Tick& tick : ticks_of(panel_.y, box_.height, false)) {
      const double at = y_(tick.at);
      out_ +=
          straight(tick.text.empty() || sideways_ ? "minor" : "grid", {box_.x, at}, {right(), at});
      if (place_.y_texts && !tick.text.empty()) y_text(at, tick.text);
    }
    out_ += straight("axis", {box_.x, box_.y}, {box_.x, bottom()});
    title();
    if (place_.y_texts && !panel_.y.label.empty()) y_label();
  }

  void y_text(double at, const std::string& text) {
    std::vector<std::string> lines = {text};
    if (sideways_) lines = wrapped(text, box_.x - place_.left_edge - 10, 2);
    std::string drawn;
    double y = at + 4 - 6.5 * static_cast<double>(lines.size() - 1);
    for (const std::string& line : lines) {
      drawn += text_at("tick", "end", {box_.x - 7, y}, line);
      widest_y_ = std::max(widest_y_, text_width(line));
      y += 13;
    }
    out_ += sideways_ ? cat("<g>", drawn, "<title>", markup_of(text), "</title></g>") : drawn;
  }

  void title() {
    const std::vector<std::string> lines = title_lines(panel_, box_.width);
    double y = place_.frame.y - 9 - 16 * (static_cast<double>(lines.size()) - 1);
    for (const std::string& line : lines) {
      out_ += text_at("head", "start", {box_.x, y}, line);
      y += 16;
    }
  }

  void y_label() {
    const Spot at{box_.x - widest_y_ - 16, box_.y + box_.height / 2};
    out_ += cat("<text class='label' text-anchor='middle' transform='translate(", coordinate(at.x),
                " ", coordinate(at.y), ") rotate(-90)'>", escape_markup(panel_.y.label), "</text>");
  }

  void references() {
    for (const Reference& reference : panel_.references) {
      std::string path;
      std::optional<Spot> before;
      for (const auto& [px, py] : reference.line) {
        if (!x_.shows(px) || !y_.shows(py)) continue;
        const Spot at{x_(px), y_(py)};
        path += cat(path.empty() ? "M" : "L", coordinate(at.x), " ", coordinate(at.y));
        if (before) notes_.avoid_line(*before, at);
        before = at;
      }
      if (!path.empty())
        out_ +=
            drawn_path(cat("class='reference", reference.dots ? " dots" : "", "'", clip()), path);
    }
  }

  bool is_never(const Point& point) const {
    const double value = sideways_ ? point.x : point.y;
    return std::isinf(value) && value > 0 && place_.never > 0;
  }

  // Returns the place of a point, or nothing if its axes cannot show it.
  std::optional<Spot> spot(const Point& point, double offset) const {
    const bool never = is_never(point);
    if (!(never && sideways_) && !x_.shows(point.x)) return {};
    if (!(never && !sideways_) && !y_.shows(point.y)) return {};
    Spot out{never && sideways_ ? never_at() : x_(point.x),
             never && !sideways_ ? never_at() : y_(point.y)};
    (sideways_ ? out.y : out.x) += offset;
    return out;
  }

  // Returns the places of all points along the axis of the conditions, in pixels.
  std::set<double> places() const {
    std::set<double> out;
    for (const Series& series : panel_.series)
      for (const Point& point : series.points)
        if (const auto at = spot(point, 0)) out.insert(sideways_ ? at->y : at->x);
    return out;
  }

  // No curve leads to infinity, so markers there may always be moved.
  double marker_offset(size_t series, const Point& point) const {
    return (place_.stays && !is_never(point)) || is_alone(panel_, series, point.x)
               ? 0
               : offsets_[series];
  }

  double bar_slot() const;
  void bars();
  std::pair<double, double> beside(const Series& series, const Point& point) const;
  void bar(const Series& series, const Point& point, double offset, double width);

  void lines() {
    for (size_t i = 0; i < panel_.series.size(); ++i) {
      const Series& series = panel_.series[i];
      if (series.mark != Mark::line) continue;
      std::string path;
      std::optional<Spot> before;
      for (const Point& point : series.points) {
        const auto at = is_never(point) ? std::nullopt : spot(point, marker_offset(i, point));
        if (at) path += cat(before ? "L" : "M", coordinate(at->x), " ", coordinate(at->y));
        if (at && before) notes_.avoid_line(*before, *at);
        before = at;
      }
      if (!path.empty())
        out_ += cat("<g class='", style_class(series), "'>",
                    drawn_path("class='line'" + clip(), path), "</g>");
    }
  }

  // A whisker stays with its marker if no other series has a point there.
  double whisker_offset(size_t series, const Point& point) const {
    return is_alone(panel_, series, point.x) ? 0 : offsets_[series];
  }

  // Drawn before the points, so that whiskers lie behind all markers.
  void whiskers() {
    for (size_t i = 0; i < panel_.series.size(); ++i) {
      const Series& series = panel_.series[i];
      if (series.mark == Mark::bars) continue;
      std::string drawn;
      for (const Point& point : series.points) {
        const auto at = spot(point, marker_offset(i, point));
        const auto beside = spot(point, whisker_offset(i, point));
        if (!at || !inside(point, *at)) continue;
        const std::string whisker = whisker_of(point, *beside);
        drawn += whisker;
        if (!whisker.empty() && at->x != beside->x) drawn += straight("whisker", *at, *beside);
      }
      if (!drawn.empty()) out_ += cat("<g class='", style_class(series), "'>", drawn, "</g>");
    }
  }

  void points() {
    for (size_t i = 0; i < panel_.series.size(); ++i) {
      const Series& series = panel_.series[i];
      if (series.mark == Mark::bars) continue;
      const size_t count = series.points.size();
      const size_t every = series.mark == Mark::line && count > kMostMarked ? (count + 7) / 8 : 1;
      const size_t first = every > 1 ? static_cast<size_t>(series.style) * every / 4 % every : 0;
      for (size_t k = first; k < count; k += every)
        point(series, series.points[k], marker_offset(i, series.points[k]));
    }
  }

  void point(const Series& series, const Point& point, double offset) {
    const auto at = spot(point, offset);
    if (!at || !inside(point, *at)) return;
    group(series, point, mark_at(series, point, *at));
    notes_.avoid(*at);
  }

  std::string mark_at(const Series& series, const Point& point, Spot at) {
    if (series.mark == Mark::ticks)
      return straight("stroke", {at.x - (sideways_ ? 0 : 8), at.y - (sideways_ ? 8 : 0)},
                      {at.x + (sideways_ ? 0 : 8), at.y + (sideways_ ? 8 : 0)});
    if (place_.stays) {
      const auto below = std::count_if(marked_.begin(), marked_.end(), [&](Spot other) {
        return std::hypot(other.x - at.x, other.y - at.y) < kMeet;
      });
      marked_.push_back(at);
      if (below > 0) return nested_marker(series, at, static_cast<size_t>(below));
    }
    // Smaller in a row, where a whisker is often shorter than a marker is wide.
    return marker(series, at, sideways_ && std::isfinite(point.low) ? kRowMarker : 1);
  }

  void group(const Series& series, const Point& point, const std::string& drawn) {
    out_ += cat("<g class='", style_class(series), "'>", drawn, "<title>",
                markup_of(tooltip(series, point)), "</title></g>");
  }

  std::string tooltip(const Series& series, const Point& point) const {
    std::string out = series.name.empty() ? "" : series.name + ": ";
    if (!point.text.empty()) return out + point.text;
    out += value_text(panel_.x, point.x) + ", " + value_text(panel_.y, point.y);
    const Axis& values = sideways_ ? panel_.x : panel_.y;
    if (!std::isnan(point.low) && !std::isnan(point.high))
      out += cat(" (", value_text(values, point.low), " to ", value_text(values, point.high), ")");
    return out;
  }

  std::string whisker_of(const Point& point, Spot at) {
    const Mapping& to = sideways_ ? x_ : y_;
    if (!to.shows(point.low) || std::isnan(point.high) || point.low == point.high) return "";
    const bool ends = std::isfinite(point.high) || place_.never <= 0;
    const double low = to(point.low), high = ends ? to(point.high) : never_at();
    const Spot a = sideways_ ? Spot{low, at.y} : Spot{at.x, low};
    const Spot b = sideways_ ? Spot{high, at.y} : Spot{at.x, high};
    notes_.avoid_line(a, b);
    return whisker(a, b, ends, sideways_ ? kRowCap : kCap) +
           (ends || is_never(point) ? "" : arrow_head(b, sideways_));
  }

  void write_notes() {
    for (const Note& note : panel_.notes) {
      if (!x_.shows(note.x) || !y_.shows(note.y)) continue;
      const Spot at{x_(note.x), y_(note.y)};
      const Box box = notes_.place(at, note.text);
      const Spot near{std::clamp(at.x, box.x, box.x + box.width),
                      std::clamp(at.y, box.y + 2, box.y + box.height - 2)};
      const std::string style = cat("note s", note.style % kStyles);
      if (std::hypot(near.x - at.x, near.y - at.y) > 14)
        out_ +=
            cat("<g class='s", note.style % kStyles, "'>", straight("leader", at, near), "</g>");
      // Not paint-order, which not all programs that print SVG know.
      for (const char* layer : {"halo", style.c_str()})
        out_ += text_at(layer, "start", {box.x + 2, box.y + 11.5}, note.text);
    }
  }

  const Panel& panel_;
  const PanelPlace& place_;
  const bool sideways_;
  const Box box_;  // the part of the frame for numbers
  const Mapping x_, y_;
  NotePlaces notes_;
  std::string out_;
  std::vector<double> offsets_;  // of series, in pixels
  std::vector<Spot> marked_;     // where there are markers
  double widest_y_ = 0;
};

double category_width(const Panel& panel, double frame_width) {
  return frame_width / std::max<double>(1, static_cast<double>(panel.x.categories.size())) - 6;
}

double Drawing::x_text_height() const {
  if (panel_.x.scale != Scale::category) return 18;
  size_t lines = 1;
  for (const std::string& name : panel_.x.categories)
    lines = std::max(lines, wrapped(name, category_width(panel_, box_.width), 3).size());
  return 4 + 14 * static_cast<double>(lines);
}

void Drawing::tick_text(double at, const std::string& text) {
  double y = bottom() + 17;
  if (panel_.x.scale != Scale::category) {
    out_ += text_at("tick", "middle", {at, y}, text);
    return;
  }
  std::string drawn;
  for (const std::string& line : wrapped(text, category_width(panel_, box_.width), 3)) {
    drawn += text_at("tick", "middle", {at, y}, line);
    y += 14;
  }
  out_ += cat("<g>", drawn, "<title>", markup_of(text), "</title></g>");
}

// Returns the pixels between neighbouring bars, or groups of bars.
double Drawing::bar_slot() const {
  std::vector<double> places;
  for (const Series& series : panel_.series)
    if (series.mark == Mark::bars)
      for (const Point& point : series.points)
        if (const auto at = spot(point, 0)) places.push_back(sideways_ ? at->y : at->x);
  std::sort(places.begin(), places.end());
  double least = (sideways_ ? box_.height : box_.width) / 2;
  if (const Axis& axis = sideways_ ? panel_.y : panel_.x; axis.scale == Scale::category)
    least = 2 * least / static_cast<double>(std::max<size_t>(1, axis.categories.size()));
  for (size_t i = 1; i < places.size(); ++i)
    if (places[i] - places[i - 1] > 0.5) least = std::min(least, places[i] - places[i - 1]);
  return least;
}

// Returns how many series have a bar at the point's place, and how many of these come before
// `series`.
std::pair<double, double> Drawing::beside(const Series& series, const Point& point) const {
  double count = 0, before = 0;
  bool passed = false;
  for (const Series& other : panel_.series) {
    passed = passed || &other == &series;
    const bool here = other.mark == Mark::bars &&
                      std::any_of(other.points.begin(), other.points.end(), [&](const Point& p) {
                        return sideways_ ? p.y == point.y : p.x == point.x;
                      });
    count += here ? 1 : 0;
    before += here && !passed ? 1 : 0;
  }
  return {count, before};
}

void Drawing::bars() {
  double most = 1;
  for (const Series& series : panel_.series)
    for (const Point& point : series.points) most = std::max(most, beside(series, point).first);
  const double width = std::min(34.0, 0.78 * bar_slot() / most);
  for (const Series& series : panel_.series) {
    if (series.mark != Mark::bars) continue;
    for (const Point& point : series.points) {
      const auto [count, before] = beside(series, point);
      bar(series, point, (before - (count - 1) / 2) * width, width);
    }
  }
}

void Drawing::bar(const Series& series, const Point& point, double offset, double width) {
  const auto at = spot(point, offset);
  if (!at) return;
  const Mapping& to = sideways_ ? x_ : y_;
  const Axis& axis = sideways_ ? panel_.x : panel_.y;
  const double base = to(to.shows(0) ? std::clamp(0.0, axis.from, axis.to) : axis.from);
  const double end = sideways_ ? at->x : at->y;
  const double low = std::min(base, end), length = std::max(1.0, std::abs(base - end));
  const double thin = std::max(1.0, width - 1.5);
  std::string drawn;
  if (is_never(point)) {
    drawn = marker(series, *at);
  } else {
    drawn = drawn_box("class='bar'", sideways_ ? Box{low, at->y - thin / 2, length, thin}
                                               : Box{at->x - thin / 2, low, thin, length});
    // The series' marker identifies it without colours.
    const double inward = base > end ? -7 : 7;
    if (thin > 9 && length > 16)
      drawn +=
          cat("<g class='tag'>",
              marker(series, sideways_ ? Spot{base + inward, at->y} : Spot{at->x, base + inward}),
              "</g>");
  }
  group(series, point, drawn + cat("<g class='over'>", whisker_of(point, *at), "</g>"));
}

}  // namespace

std::string draw_panel(const Panel& panel, const PanelPlace& place) {
  return Drawing(panel, place).svg();
}

}  // namespace etr::plot
