#include "train/svg_chart.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/format_text.h"
#include "core/markup.h"
#include "core/number_text.h"

namespace etr::train {
namespace {

// About the size of a phone's screen, and a third of a desktop's width, so that text keeps its size
// on both.
constexpr double kWidth = 380, kHeight = 250;
constexpr double kLeft = 48, kRight = 14, kTop = 12, kBottom = 44;
constexpr size_t kMostMarked = 24;  // points with a dot each

// Limits that keep the steps between ticks above zero and their sums finite.
constexpr double kLeastOfAxis = 1e-300, kMostOfAxis = 1e300;

std::string fixed(double value, int digits) { return format_text("%.*f", digits, value); }

// 1, 2 or 5 times a power of ten, so that about `count` steps cover `range`.
double nice_step(double range, int count) {
  const double raw = range / count, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double m : {1.0, 2.0, 5.0})
    if (raw <= m * power * 1.0001) return m * power;
  return 10 * power;
}

// Returns the decimals that distinguish neighbouring ticks.
int digits_for(double step) {
  return std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 6);
}

// "20k", "1.5M": short enough to stand side by side.
std::string tick_text(double value, double step) {
  if (std::abs(value) >= 1e6) return number_text(value / 1e6, digits_for(step / 1e6)) + "M";
  if (std::abs(value) >= 1e4) return number_text(value / 1e3, digits_for(step / 1e3)) + "k";
  return number_text(value, digits_for(step));
}

std::string text_at(const char* style, const char* anchor, double x, double y,
                    const std::string& text) {
  return cat("<text class='", style, "' text-anchor='", anchor, "' x='", fixed(x, 1), "' y='",
             fixed(y, 1), "'>", escape_markup(text), "</text>");
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
    const double unit = options_.percent ? 100 : 1;
    const double y_step = nice_step(options_.y_max - options_.y_min, 5);
    for (double v = std::ceil(options_.y_min / y_step - 1e-9) * y_step;
         v <= options_.y_max + 1e-9 * y_step; v += y_step)
      out += across("grid", v) +
             text_at("tick", "end", kLeft - 8, y(v) + 4,
                     tick_text(v * unit, y_step * unit) + (options_.percent ? " %" : ""));
    const double x_step = nice_step(x_max_, 5);
    for (double v = 0; v <= x_max_ + 1e-9 * x_step; v += x_step)
      out += text_at("tick", "middle", x(v), kHeight - kBottom + 18, tick_text(v, x_step));
    return out + across("axis", options_.y_min) +
           text_at("tick", "middle", (kLeft + kWidth - kRight) / 2, kHeight - 6, options_.x_label);
  }

  std::string target() const {
    // Below its line at the right end, where a curve that reaches the target is above it.
    return across("target", options_.target) +
           text_at("tick", "end", kWidth - kRight - 2, y(options_.target) + 15,
                   "target " + number_text(options_.target * 100, 1) + " %");
  }

  std::string line(const Series& s) const {
    if (s.points.empty()) return "";
    std::string path;
    for (const auto& [px, py] : s.points)
      path += cat(path.empty() ? "M" : "L", fixed(x(px), 1), " ", fixed(y(py), 1));
    const std::string style = cat(" class='line s", s.style % kSeriesStyles, "'");
    std::string out;
    if (options_.fill)
      out += cat("<path d='", path, "L", fixed(x(s.points.back().first), 1), " ", kHeight - kBottom,
                 "L", fixed(x(s.points.front().first), 1), " ", kHeight - kBottom,
                 "Z' class='area s", s.style % kSeriesStyles, "'/>");
    out += cat("<path d='", path, "'", style, "/>");
    if (s.points.size() <= kMostMarked && !options_.fill)
      for (const auto& [px, py] : s.points)
        out += cat("<circle cx='", fixed(x(px), 1), "' cy='", fixed(y(py), 1),
                   "' r='2.5' class='mark s", s.style % kSeriesStyles, "'/>");
    return out;
  }

 private:
  std::string across(const char* style, double v) const {
    return cat("<line class='", style, "' x1='", kLeft, "' x2='", kWidth - kRight, "' y1='",
               fixed(y(v), 1), "' y2='", fixed(y(v), 1), "'/>");
  }

  double x_max_;
  const ChartOptions& options_;
};

}  // namespace

std::string svg_chart(const std::vector<Series>& series, const ChartOptions& options) {
  double x_max = 0;
  for (const Series& s : series)
    for (const auto& [px, py] : s.points) x_max = std::max(x_max, px);
  const double x_end = x_max > 0 ? std::clamp(x_max * 1.02, kLeastOfAxis, kMostOfAxis) : 1;
  const Plot plot(x_end, options);
  std::string out =
      cat("<svg viewBox='0 0 ", kWidth, " ", kHeight, "' role='img' aria-labelledby='", options.id,
          "-t ", options.id, "-d'><title id='", options.id, "-t'>", escape_markup(options.title),
          "</title><desc id='", options.id, "-d'>", escape_markup(options.description), "</desc>",
          plot.axes());
  if (options.target > 0) out += plot.target();
  for (const Series& s : series) out += plot.line(s);
  return out + "</svg>";
}

std::string svg_swatch(int style) {
  return cat(
      "<svg class='swatch' viewBox='0 0 26 8' aria-hidden='true'><path d='M1 4L25 4' class='line s",
      style % kSeriesStyles, "'/></svg>");
}

}  // namespace etr::train
