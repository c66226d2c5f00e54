// How fast the pairs of a head turn in a rotary position embedding (Su et al. 2021).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace etr::nn {

// The options `rotary_base` and `rotary_scaling` of the layer `attention`.
struct Rotary {
  double base = 0;
  std::vector<double> scaling;  // none, or: factor, low, high, context
};

// Returns the angle by which pair `i` of a head turns from one position to the next.
double rotary_frequency(const Rotary& rotary, int64_t head, int64_t i);

// Returns the options that give these angles, in as few digits as `fits` accepts; none if it
// accepts none. `angles`: of every pair of a head, as exactly as floats hold them.
std::optional<Rotary> rotary_of(std::span<const double> angles,
                                const std::function<bool(const Rotary&)>& fits);

}  // namespace etr::nn
