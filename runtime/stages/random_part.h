// A random rectangle of an image, of random area and aspect ratio.
#pragma once

#include <optional>

#include "core/options.h"
#include "core/rng.h"
#include "stages/image_ops.h"

namespace etr::stages {

// Uses the options "area_min", "area_max" (shares of the image's area), "ratio_min" and "ratio_max"
// (width : height, with a uniformly drawn logarithm).
class RandomPart {
 public:
  RandomPart(const Options& options, const char* stage);

  // An integer rectangle within the image, or nothing if ten tries found none.
  std::optional<Box> draw(Rng& rng, int64_t height, int64_t width) const;
  // The largest centred rectangle with an allowed ratio.
  Box largest(int64_t height, int64_t width) const;
  // The smallest possible side of a part, as a share of the image's shorter side.
  double min_side_share() const;

 private:
  const double area_min_, area_max_, log_min_, log_max_;
};

}  // namespace etr::stages
