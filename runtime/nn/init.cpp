#include "nn/init.h"

#include <algorithm>
#include <cmath>

namespace etr::nn {

graph::Initializer constant(float value) {
  return [value](std::span<float> out, Rng&) { std::fill(out.begin(), out.end(), value); };
}

graph::Initializer normal(float deviation) {
  return [deviation](std::span<float> out, Rng& rng) { rng.fill_normal(out, deviation); };
}

graph::Initializer he_normal(int64_t fan_in) {
  return normal(std::sqrt(2.0f / static_cast<float>(fan_in)));
}

graph::Initializer uniform(float limit) {
  return [limit](std::span<float> out, Rng& rng) {
    for (float& v : out) v = rng.uniform(-limit, limit);
  };
}

graph::Initializer glorot_uniform(int64_t fan_in, int64_t fan_out) {
  return uniform(std::sqrt(6.0f / static_cast<float>(fan_in + fan_out)));
}

graph::Initializer weight_initializer(const std::string& kind, int64_t fan_in, int64_t fan_out) {
  if (kind == "zeros") return constant(0);
  if (kind == "normal") return normal(0.02f);
  return kind == "glorot" ? glorot_uniform(fan_in, fan_out) : he_normal(fan_in);
}

}  // namespace etr::nn
