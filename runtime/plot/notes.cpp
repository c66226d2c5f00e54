#include "plot/notes.h"

#include <algorithm>
#include <cmath>

#include "plot/text.h"

namespace etr::plot {
namespace {

constexpr double kHeight = 15;

double overlap(const Box& a, const Box& b) {
  const double width = std::min(a.x + a.width, b.x + b.width) - std::max(a.x, b.x);
  const double height = std::min(a.y + a.height, b.y + b.height) - std::max(a.y, b.y);
  return width > 0 && height > 0 ? width * height : 0;
}

}  // namespace

void NotePlaces::avoid(Spot spot, double radius) {
  avoid(Box{spot.x - radius, spot.y - radius, 2 * radius, 2 * radius});
}

void NotePlaces::avoid_line(Spot from, Spot to) {
  const double length = std::hypot(to.x - from.x, to.y - from.y);
  if (!std::isfinite(length)) return;
  const int steps = static_cast<int>(std::clamp(length / 5, 1.0, 400.0));
  for (int i = 0; i <= steps; ++i) {
    const double share = i / static_cast<double>(steps);
    avoid({from.x + share * (to.x - from.x), from.y + share * (to.y - from.y)}, 2.5);
  }
}

double NotePlaces::cost(const Box& box, Spot at) const {
  double covered = 0;
  for (const Box& obstacle : obstacles_) covered += overlap(box, obstacle);
  const double dx = std::max({box.x - at.x, 0.0, at.x - box.x - box.width});
  const double dy = std::max({box.y - at.y, 0.0, at.y - box.y - box.height});
  return covered * 10 + std::hypot(dx, dy);
}

Box NotePlaces::place(Spot at, const std::string& text) {
  const double width = text_width(text, 13.2) + 4;  // bold
  Box best;
  double least = -1;
  for (const double distance : {8.0, 16.0, 26.0, 40.0, 58.0, 80.0})
    for (int turn = 0; turn < 16; ++turn) {
      const double angle = 2 * 3.14159265358979 * turn / 16;
      const double dx = std::cos(angle), dy = -std::sin(angle);
      Box box{at.x + dx * (distance + width / 2) - width / 2,
              at.y + dy * (distance + kHeight / 2) - kHeight / 2, width, kHeight};
      box.x = std::clamp(box.x, frame_.x + 2,
                         std::max(frame_.x + 2, frame_.x + frame_.width - width - 2));
      box.y = std::clamp(box.y, frame_.y + 2,
                         std::max(frame_.y + 2, frame_.y + frame_.height - kHeight - 2));
      const double value = cost(box, at);
      if (least < 0 || value < least) best = box, least = value;
    }
  avoid(best);
  return best;
}

}  // namespace etr::plot
