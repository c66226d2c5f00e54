#include "core/rng.h"

#include <cmath>
#include <numbers>

namespace etr {

float Rng::normal() {
  const float u = 1.0f - uniform();  // (0, 1]: log stays finite
  return std::sqrt(-2.0f * std::log(u)) * std::cos(2.0f * std::numbers::pi_v<float> * uniform());
}

}  // namespace etr
