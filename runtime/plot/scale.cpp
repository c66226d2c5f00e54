#include "plot/scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/exact_number.h"
#include "core/number_text.h"
#include "plot/text.h"

namespace etr::plot {
namespace {

constexpr double kTextRoom = 14;  // pixels between the texts of neighbouring ticks

bool is_log(Scale scale) { return scale == Scale::log2 || scale == Scale::log10; }

// Returns 1, 2 or 5 times a power of ten, so that about `count` steps cover `range`.
double nice_step(double range, double count) {
  const double raw = range / count, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double m : {1.0, 2.0, 5.0})
    if (raw <= m * power * 1.0001) return m * power;
  return 10 * power;
}

int digits_for(double step) {
  return std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 9);
}

// "20k", "1.5M": short enough to stand side by side.
std::string linear_text(double value, double step) {
  if (std::abs(value) < step * 1e-6) value = 0;
  if (std::abs(value) >= 1e15) return exact_number(value);
  if (std::abs(value) >= 1e6) return number_text(value / 1e6, digits_for(step / 1e6)) + "M";
  if (std::abs(value) >= 1e4) return number_text(value / 1e3, digits_for(step / 1e3)) + "k";
  return number_text(value, digits_for(step));
}

std::vector<Tick> linear_ticks(const Axis& axis, double count) {
  const double unit = axis.percent ? 100 : 1, step = nice_step((axis.to - axis.from) * unit, count);
  std::vector<Tick> out;
  const double low = axis.from * unit, high = axis.to * unit;
  for (double v = std::ceil(low / step - 1e-9); v * step <= high + 1e-9 * step; v += 1)
    out.push_back({v * step / unit, linear_text(v * step, step) + (axis.percent ? " %" : "")});
  return out;
}

std::string decimal_power_text(int exponent) {
  if (exponent >= -3 && exponent <= 3) return number_text(std::pow(10, exponent), 3);
  if (exponent >= 4 && exponent <= 8)
    return linear_text(std::pow(10, exponent), std::pow(10, exponent));
  return cat("1e", exponent);
}

// Powers of ten; if there are few, also 2 and 5 times these, and minor ticks at each digit.
std::vector<Tick> log10_ticks(const Axis& axis, double count) {
  const double low = std::log10(axis.from), high = std::log10(axis.to);
  if (high - low < 0.8) return linear_ticks(axis, count);
  const int first = static_cast<int>(std::floor(low)), last = static_cast<int>(std::ceil(high));
  const int every = std::max(1, static_cast<int>(std::ceil((high - low) / std::max(1.0, count))));
  const bool between = (high - low) * 3 <= count + 1;
  std::vector<Tick> out;
  for (int power = first; power <= last; ++power)
    for (int digit = 1; digit <= 9; ++digit) {
      const double at = digit * std::pow(10, power);
      if (at < axis.from * (1 - 1e-9) || at > axis.to * (1 + 1e-9)) continue;
      if (digit == 1 && power % every == 0)
        out.push_back({at, decimal_power_text(power)});
      else if (between && (digit == 2 || digit == 5))
        out.push_back({at, at >= 1 ? linear_text(at, std::pow(10, power)) : exact_number(at)});
      else if (every == 1 || digit == 1)
        out.push_back({at, ""});
    }
  return out;
}

std::vector<Tick> log2_ticks(const Axis& axis, double count) {
  const double low = std::log2(axis.from), high = std::log2(axis.to);
  const int first = static_cast<int>(std::ceil(low - 1e-9)),
            last = static_cast<int>(std::floor(high + 1e-9));
  if (last <= first) return linear_ticks(axis, count);
  const int every = std::max(1, static_cast<int>(std::ceil((high - low) / std::max(1.0, count))));
  const bool powers = first < -4 || last > 19;
  std::vector<Tick> out;
  for (int power = first; power <= last; ++power) {
    const double at = std::exp2(power);
    const bool major = (power - first) % every == 0;
    out.push_back({at, !major   ? ""
                       : powers ? cat("2^", power)
                                : number_text(at, power < 0 ? -power : 0)});
  }
  return out;
}

std::vector<Tick> given_ticks(const Axis& axis) {
  std::vector<Tick> out;
  for (const double at : axis.at) out.push_back({at, exact_number(at)});
  return out;
}

// Returns whether the texts fit side by side with the space `between` them.
bool fit(const std::vector<Tick>& ticks, const Axis& axis, double room, double between) {
  const Mapping place(axis, 0, room);
  double end = -std::numeric_limits<double>::infinity();
  for (const Tick& tick : ticks) {
    if (tick.text.empty()) continue;
    const double half = text_width(tick.text) / 2, at = place(tick.at);
    if (at - half < end + between) return false;
    end = at + half;
  }
  return true;
}

std::vector<Tick> category_ticks(const Axis& axis) {
  std::vector<Tick> out;
  for (size_t i = 0; i < axis.categories.size(); ++i)
    out.push_back({static_cast<double>(i), axis.categories[i]});
  return out;
}

}  // namespace

void Extent::add(double value) {
  if (!std::isfinite(value)) return;
  low = std::min(low, value);
  high = std::max(high, value);
}

Needs needs_of(const Panel& panel, bool of_x) {
  Needs out;
  const Axis& axis = of_x ? panel.x : panel.y;
  const bool whiskers_here = (panel.y.scale == Scale::category) == of_x;
  const auto add = [&](double value) {
    if (!is_log(axis.scale) || value > 0) out.values.add(value);
  };
  for (const Series& series : panel.series) {
    if (series.mark == Mark::bars && whiskers_here) out.from_zero = true;
    for (const Point& point : series.points) {
      add(of_x ? point.x : point.y);
      if (whiskers_here) add(point.low), add(point.high);
    }
  }
  for (const Note& note : panel.notes) add(of_x ? note.x : note.y);
  for (const Range& range : panel.ranges)
    if (range.of_x == of_x) add(range.low), add(range.high);
  // A level to compare with must be visible; for a slope, the part beside the data is enough.
  for (const Reference& reference : panel.references)
    if (!of_x && !reference.line.empty() &&
        reference.line.front().second == reference.line.back().second)
      add(reference.line.front().second);
  return out;
}

namespace {

// Limits that keep the ends of an axis, and their difference, finite. Values beyond the limits are
// drawn outside of the frame.
constexpr double kMost = 1e300, kMostOfAxis = 1e307;

// The least length of an axis, as a share of its numbers. Ticks on a shorter one could round to the
// same number.
constexpr double kLeastRange = 1e-9;

double size_of(double a, double b) { return std::max(std::abs(a), std::abs(b)); }

Extent within(Extent values, double least) {
  if (values.empty()) return values;
  values.low = std::clamp(values.low, least, kMost);
  values.high = std::clamp(values.high, least, kMost);
  return values;
}

void fit_log(Axis& axis, const Extent& values) {
  if (values.empty()) {
    axis.from = 1, axis.to = 10;
    return;
  }
  const double room = std::exp(0.05 * (std::log(values.high) - std::log(values.low)));
  const double least = axis.scale == Scale::log2 ? std::exp2(0.3) : std::pow(10, 0.06);
  axis.from = std::max(values.low / std::max(room, least), 1 / kMostOfAxis);
  axis.to = std::min(values.high * std::max(room, least), kMostOfAxis);
}

void fit_linear(Axis& axis, const Extent& values, bool from_zero) {
  if (values.empty()) {
    axis.from = 0, axis.to = 1;
    return;
  }
  const double size = size_of(values.low, values.high);
  double room = 0.06 * (values.high - values.low);
  if (room <= kLeastRange * size) room = size > 0 ? 0.1 * size : 1;
  axis.from = values.low - room;
  axis.to = values.high + room;
  const bool near_zero = values.low >= 0 && values.low < 0.4 * values.high;
  if (near_zero || (from_zero && values.low >= 0)) axis.from = 0;
  if (from_zero && values.high <= 0) axis.to = 0;
}

}  // namespace

Axis fitted(Axis axis, const Needs& needs) {
  const double from = axis.from, to = axis.to;
  if (axis.scale == Scale::category)
    axis.from = -0.5,
    axis.to = std::max<double>(1, static_cast<double>(axis.categories.size())) - 0.5;
  else if (is_log(axis.scale))
    fit_log(axis, within(needs.values, 1 / kMost));
  else
    fit_linear(axis, within(needs.values, -kMost), needs.from_zero);
  if (std::isfinite(from)) axis.from = from;
  if (std::isfinite(to)) axis.to = to;
  if (!(axis.to - axis.from > kLeastRange * size_of(axis.from, axis.to)))
    axis.to =
        is_log(axis.scale) ? axis.from * 10 : axis.from + std::max(1.0, 0.1 * std::abs(axis.from));
  return axis;
}

std::vector<Tick> ticks_of(const Axis& axis, double room, bool horizontal) {
  if (axis.scale == Scale::category) return category_ticks(axis);
  std::vector<Tick> out = given_ticks(axis);
  if (!out.empty() && (!horizontal || fit(out, axis, room, kTextRoom / 2))) return out;
  // Which ticks fit depends on the widths of their texts, and those depend on the number of ticks.
  for (double count = horizontal ? 8 : std::max(2.0, room / 30); count >= 1; count -= 1) {
    out = axis.scale == Scale::log2    ? log2_ticks(axis, count)
          : axis.scale == Scale::log10 ? log10_ticks(axis, count)
                                       : linear_ticks(axis, count);
    if (!horizontal || fit(out, axis, room, kTextRoom)) break;
  }
  return out;
}

Mapping::Mapping(const Axis& axis, double first, double last)
    : log_(is_log(axis.scale)),
      low_(log_ ? std::log(axis.from) : axis.from),
      high_(log_ ? std::log(axis.to) : axis.to),
      first_(first),
      last_(last) {}

double Mapping::operator()(double value) const {
  const double share = ((log_ ? std::log(value) : value) - low_) / (high_ - low_);
  // Limits values far beyond the frame to numbers that every viewer can read.
  return first_ + std::clamp(share, -20.0, 21.0) * (last_ - first_);
}

bool Mapping::shows(double value) const { return std::isfinite(value) && (!log_ || value > 0); }

}  // namespace etr::plot
