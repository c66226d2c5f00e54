// A random rectangle of an image, of random area and shape.
#pragma once

#include <optional>

#include "core/options.h"
#include "core/rng.h"
#include "stages/image_ops.h"

namespace etr::stages {

// Has the options "area_min", "area_max" (shares of the image's area), "ratio_min" and "ratio_max"
// (width : height, drawn evenly in its logarithm).
class RandomPart {
 public:
  RandomPart(const Options& options, const char* stage);

  // A rectangle of whole pixels that lies in the image; none where ten tries found none.
  std::optional<Box> draw(Rng& rng, int64_t height, int64_t width) const;
  // The largest centred one of an allowed shape.
  Box largest(int64_t height, int64_t width) const;
  // The least side a part may have, as a share of the image's shorter side.
  double least_side_share() const;

 private:
  const double area_min_, area_max_, log_min_, log_max_;
};

}  // namespace etr::stages
