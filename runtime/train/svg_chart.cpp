#include "train/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/error.h"

namespace etr::train {
namespace {

constexpr double kWidth = 560, kHeight = 320;
constexpr double kLeft = 54, kRight = 18, kTop = 44, kBottom = 46;

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// 1, 2 or 5 times a power of ten, so that about `count` steps cover `range`.
double nice_step(double range, int count) {
  const double raw = range / count, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double m : {1.0, 2.0, 5.0})
    if (raw <= m * power) return m * power;
  return 10 * power;
}

class Plot {
 public:
  Plot(double x_max, const ChartOptions& options) : x_max_(x_max), options_(options) {}

  double x(double v) const { return kLeft + v / x_max_ * (kWidth - kLeft - kRight); }
  double y(double v) const {
    const double share = (v - options_.y_min) / (options_.y_max - options_.y_min);
    return kHeight - kBottom - std::clamp(share, 0.0, 1.0) * (kHeight - kTop - kBottom);
  }

  std::string axes() const {
    std::string out;
    const double y_step = nice_step(options_.y_max - options_.y_min, 5);
    for (double v = std::ceil(options_.y_min / y_step) * y_step; v <= options_.y_max + 1e-9;
         v += y_step) {
      out += cat("<line class='grid' x1='", kLeft, "' x2='", kWidth - kRight, "' y1='",
                 fixed(y(v), 1), "' y2='", fixed(y(v), 1), "'/>");
      out += cat("<text class='tick' text-anchor='end' x='", kLeft - 8, "' y='", fixed(y(v) + 4, 1),
                 "'>", number_text(v * 100, y_step < 0.0099 ? 1 : 0), " %</text>");
    }
    const double x_step = nice_step(x_max_, 6);
    for (double v = 0; v <= x_max_ + 1e-9; v += x_step)
      out += cat("<text class='tick' text-anchor='middle' x='", fixed(x(v), 1), "' y='",
                 kHeight - kBottom + 18, "'>", number_text(v, x_step < 1 ? 1 : 0), "</text>");
    out += cat("<line class='axis' x1='", kLeft, "' x2='", kWidth - kRight, "' y1='",
               kHeight - kBottom, "' y2='", kHeight - kBottom, "'/>");
    out += cat("<text class='label' text-anchor='middle' x='", (kLeft + kWidth - kRight) / 2,
               "' y='", kHeight - 8, "'>", html_escape(options_.x_label), "</text>");
    return out;
  }

  std::string target() const {
    const double at = y(options_.target);
    return cat("<line class='target' x1='", kLeft, "' x2='", kWidth - kRight, "' y1='",
               fixed(at, 1), "' y2='", fixed(at, 1), "'/><text class='targettext' x='", kLeft + 6,
               "' y='", fixed(at - 6, 1), "'>target ", number_text(options_.target * 100, 1),
               " %</text>");
  }

  std::string line(const Series& s) const {
    if (s.points.empty()) return "";
    std::string path;
    for (const auto& [px, py] : s.points)
      path += cat(path.empty() ? "M" : "L", fixed(x(px), 1), " ", fixed(y(py), 1));
    std::string out;
    if (options_.fill)
      out += cat("<path d='", path, "L", fixed(x(s.points.back().first), 1), " ", kHeight - kBottom,
                 "L", fixed(x(s.points.front().first), 1), " ", kHeight - kBottom, "Z' fill='",
                 s.color, "' opacity='0.12'/>");
    out += cat("<path class='line' d='", path, "' stroke='", s.color, "'/>");
    if (s.points.size() <= 60 && !options_.fill)
      for (const auto& [px, py] : s.points)
        out += cat("<circle cx='", fixed(x(px), 1), "' cy='", fixed(y(py), 1), "' r='3' fill='",
                   s.color, "'/>");
    return out;
  }

 private:
  double x_max_;
  const ChartOptions& options_;
};

}  // namespace

std::string svg_chart(const std::vector<Series>& series, const ChartOptions& options) {
  double x_max = 0;
  for (const Series& s : series)
    for (const auto& [px, py] : s.points) x_max = std::max(x_max, px);
  const Plot plot(x_max > 0 ? x_max * 1.02 : 1, options);
  std::string out =
      cat("<svg viewBox='0 0 ", kWidth, " ", kHeight, "' role='img'>", "<text class='title' x='",
          12, "' y='22'>", html_escape(options.title), "</text>", plot.axes());
  if (options.target > 0) out += plot.target();
  for (const Series& s : series) out += plot.line(s);
  return out + "</svg>";
}

std::string number_text(double value, int digits) {
  std::string text = fixed(std::abs(value), digits);
  if (const size_t dot = text.find('.'); dot != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  size_t end = text.find('.');
  if (end == std::string::npos) end = text.size();
  for (size_t i = end; i > 3; i -= 3) text.insert(i - 3, ",");
  return (value < 0 && text != "0" ? "-" : "") + text;
}

std::string html_escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace etr::train
