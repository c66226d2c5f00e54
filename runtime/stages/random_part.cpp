#include "stages/random_part.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace etr::stages {

RandomPart::RandomPart(const Options& options, const char* stage)
    : area_min_(options.number("area_min")),
      area_max_(options.number("area_max")),
      log_min_(std::log(options.number("ratio_min"))),
      log_max_(std::log(options.number("ratio_max"))) {
  if (area_min_ > area_max_ || log_min_ > log_max_)
    fail(Code::invalid_argument, stage, ": a minimum is above its maximum");
}

std::optional<Box> RandomPart::draw(Rng& rng, int64_t height, int64_t width) const {
  constexpr int kTries = 10;
  const double whole = static_cast<double>(height) * static_cast<double>(width);
  for (int i = 0; i < kTries; ++i) {
    const double area = whole * (area_min_ + (area_max_ - area_min_) * rng.uniform());
    const double ratio = std::exp(log_min_ + (log_max_ - log_min_) * rng.uniform());
    const int64_t w = std::llround(std::sqrt(area * ratio)),
                  h = std::llround(std::sqrt(area / ratio));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const uint32_t y = rng.below(static_cast<uint32_t>(height - h + 1));
    const uint32_t x = rng.below(static_cast<uint32_t>(width - w + 1));
    return Box{static_cast<double>(y), static_cast<double>(x), static_cast<double>(h),
               static_cast<double>(w)};
  }
  return std::nullopt;
}

Box RandomPart::largest(int64_t height, int64_t width) const {
  double h = static_cast<double>(height), w = static_cast<double>(width);
  w = std::min(w, h * std::exp(log_max_));
  h = std::min(h, w / std::exp(log_min_));
  return {(static_cast<double>(height) - h) / 2, (static_cast<double>(width) - w) / 2, h, w};
}

double RandomPart::min_side_share() const {
  return std::sqrt(area_min_ * std::exp(std::min(log_min_, -log_max_)));
}

}  // namespace etr::stages
