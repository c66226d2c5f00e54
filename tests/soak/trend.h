// Whether a series of samples stays flat.
#pragma once

#include <string>
#include <vector>

#include "soak/resources.h"

namespace soak {

// The resources that were held after a round.
struct Sample {
  double seconds;
  int64_t round;
  Amounts held;
};

// Names what grew by more than its margin, and how; empty: all is flat. Two things have to stay
// within the margin: the median of the last third of the samples above that of the first, and, so
// that a long run finds what is slower, the growth over the whole time that the slope of the second
// half means. That slope is the median of the slopes of all pairs of samples (Theil and Sen), which
// a few outliers do not move. Needs 9 samples.
std::vector<std::string> growing(const std::vector<Sample>& samples);

}  // namespace soak
