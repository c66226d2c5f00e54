#include "plot/marks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/error.h"
#include "plot/text.h"

namespace etr::plot {
namespace {

constexpr double kRadius = 3.6, kStarRadius = 9;

std::string polygon(Spot at, const std::vector<Spot>& corners, double radius) {
  std::string out;
  for (const Spot& corner : corners)
    out += cat(out.empty() ? "M" : "L", coordinate(at.x + corner.x * radius), " ",
               coordinate(at.y + corner.y * radius));
  return out + "Z";
}

// Returns corners on a circle, one at the top. `inner` below 1 adds a second ring between them: a
// star.
std::vector<Spot> ring(int corners, double inner = 1, double turn = 0) {
  std::vector<Spot> out;
  const int count = inner < 1 ? 2 * corners : corners;
  for (int i = 0; i < count; ++i) {
    const double angle = 2 * std::numbers::pi * (i / static_cast<double>(count) + turn);
    const double radius = inner < 1 && i % 2 == 1 ? inner : 1;
    out.push_back({radius * std::sin(angle), -radius * std::cos(angle)});
  }
  return out;
}

// Returns an upright cross with arms of width 2 a.
std::vector<Spot> cross() {
  constexpr double a = 0.36, e = 1.15;
  return {{-a, -e}, {a, -e}, {a, -a}, {e, -a}, {e, a},   {a, a},
          {a, e},   {-a, e}, {-a, a}, {-e, a}, {-e, -a}, {-a, -a}};
}

std::vector<Spot> diagonal_cross() {
  std::vector<Spot> out = cross();
  for (Spot& corner : out)
    corner = {(corner.x - corner.y) * 0.7071, (corner.x + corner.y) * 0.7071};
  return out;
}

// All shapes have about the area of a circle of radius 1.
std::string shape_path(int shape, Spot at, double radius) {
  switch (shape % kStyles) {
    case 1: return polygon(at, {{-0.9, -0.9}, {0.9, -0.9}, {0.9, 0.9}, {-0.9, 0.9}}, radius);
    case 2: return polygon(at, ring(3), radius * 1.4);
    case 3: return polygon(at, ring(4), radius * 1.3);
    case 4: return polygon(at, ring(3, 1, 0.5), radius * 1.4);
    case 5: return polygon(at, cross(), radius * 1.1);
    case 6: return polygon(at, ring(5), radius * 1.2);
    default: return polygon(at, diagonal_cross(), radius * 1.1);
  }
}

}  // namespace

std::string style_class(const Series& series) {
  return cat("s", series.style % kStyles, series.hollow ? " hollow" : "");
}

std::string marker(const Series& series, Spot at, double size) {
  // Unfilled, so that the marker inside it can be seen.
  if (series.star)
    return cat("<path class='star' d='", polygon(at, ring(5, 0.5), kStarRadius * size), "'/>");
  // Series that share a colour have different markers.
  const int own = series.style + series.style / kStyles;
  const int shape = (series.shape >= 0 ? series.shape : own) % kStyles;
  if (shape == 0)
    return cat("<circle class='mark' cx='", coordinate(at.x), "' cy='", coordinate(at.y), "' r='",
               kRadius * size, "'/>");
  return cat("<path class='mark' d='", shape_path(shape, at, kRadius * size), "'/>");
}

std::string nested_marker(const Series& series, Spot at, size_t count) {
  const double size = 1 + 0.65 * static_cast<double>(std::min<size_t>(count, 3));
  return cat("<g class='ring'>", marker(series, at, size), "</g>");
}

std::string arrow_head(Spot tip, bool right) {
  constexpr double kHalf = 4, kLength = 6;
  const Spot one =
      right ? Spot{tip.x - kLength, tip.y - kHalf} : Spot{tip.x - kHalf, tip.y + kLength};
  const Spot other =
      right ? Spot{tip.x - kLength, tip.y + kHalf} : Spot{tip.x + kHalf, tip.y + kLength};
  return cat("<path class='arrow' d='M", coordinate(one.x), " ", coordinate(one.y), "L",
             coordinate(tip.x), " ", coordinate(tip.y), "L", coordinate(other.x), " ",
             coordinate(other.y), "'/>");
}

std::string whisker(Spot low, Spot high, bool high_closed, double cap_length) {
  const bool upright = std::abs(low.x - high.x) < 1e-9;
  std::string path = cat("M", coordinate(low.x), " ", coordinate(low.y), "L", coordinate(high.x),
                         " ", coordinate(high.y));
  const auto cap = [&](Spot at) {
    const double dx = upright ? cap_length : 0, dy = upright ? 0 : cap_length;
    path += cat("M", coordinate(at.x - dx), " ", coordinate(at.y - dy), "L", coordinate(at.x + dx),
                " ", coordinate(at.y + dy));
  };
  cap(low);
  if (high_closed) cap(high);
  return cat("<path class='whisker' d='", path, "'/>");
}

}  // namespace etr::plot
