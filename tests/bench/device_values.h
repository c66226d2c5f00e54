// Random device tensors whose values the host can recompute, and reads of single elements.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "core/rng.h"
#include "gpu/recording.h"
#include "ops/op.h"

namespace etr::bench {

// Multiples of 1/128 in [-1, 1], which bfloat16 and float16 represent exactly, so that a reference
// needs no rounding. They repeat after a prime number of elements.
class Values {
 public:
  explicit Values(uint64_t seed) : values_(1048573) {
    Rng rng(seed);
    for (float& v : values_) v = (static_cast<float>(rng.below(257)) - 128) / 128;
  }
  double operator[](uint64_t i) const { return values_[i % values_.size()]; }

  void fill(const gpu::DevicePtr& device, const ops::DeviceTensor& tensor) const {
    gpu::Arena staging(device, gpu::MemoryUse::upload);
    const gpu::Buffer from = staging.allocate(tensor.buffer.size_bytes);
    auto* to = reinterpret_cast<float*>(from.host);
    for (uint64_t at = 0, count = tensor.count(); at < count; at += values_.size())
      std::memcpy(to + at, values_.data(), 4 * std::min<uint64_t>(values_.size(), count - at));
    gpu::run_uncompared(device, {gpu::Copy{from, tensor.buffer}});
  }

 private:
  std::vector<float> values_;
};

// A sum, and the sum of its terms' magnitudes to judge errors by.
struct Reference {
  double sum = 0, magnitude = 0;
  void add(double term) {
    sum += term;
    magnitude += std::abs(term);
  }
};

// Returns the largest error among randomly chosen elements, relative to the magnitude of each one's
// terms.
inline double largest_error(const gpu::DevicePtr& device, const ops::DeviceTensor& tensor,
                            const std::function<Reference(uint64_t)>& reference) {
  constexpr int kSamples = 64;
  gpu::Arena arena(device, gpu::MemoryUse::readback);
  const gpu::Buffer fetched = arena.allocate(4 * kSamples);
  Rng rng(7);
  std::vector<uint64_t> places;
  gpu::CommandList commands;
  for (int i = 0; i < kSamples; ++i) {
    places.push_back(i == 0 ? tensor.count() - 1 : rng.below(tensor.count()));
    commands.push_back(gpu::Copy{tensor.buffer.slice(4 * places.back(), 4),
                                 fetched.slice(4 * static_cast<uint64_t>(i), 4)});
  }
  gpu::run_uncompared(device, commands);
  double worst = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const Reference wanted = reference(places[i]);
    const double got = reinterpret_cast<const float*>(fetched.host)[i];
    const double error = std::abs(got - wanted.sum) / std::max(wanted.magnitude, 1e-30);
    worst = std::isfinite(got) ? std::max(worst, error) : INFINITY;
  }
  return worst;
}

}  // namespace etr::bench
