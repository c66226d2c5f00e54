#include "parallel/row_peers.h"

#include <algorithm>
#include <vector>

#include "parallel/staging.h"

namespace etr::parallel {
namespace {

// Joins the moments of parts of the rows, [parts][weight, means, variances, 1] (Chan et al. 1979).
void join(std::span<const float> parts, std::span<float> moments) {
  const size_t channels = moments.size() / 2, length = moments.size() + 1;
  double total = 0;
  for (size_t at = 0; at < parts.size(); at += length) total += parts[at];
  for (size_t ch = 0; ch < channels; ++ch) {
    double mean = 0, variance = 0;
    for (size_t at = 0; at < parts.size(); at += length)
      mean += parts[at] / total * parts[at + 1 + ch];
    for (size_t at = 0; at < parts.size(); at += length) {
      const double apart = parts[at + 1 + ch] - mean;
      variance += parts[at] / total * (parts[at + 1 + channels + ch] + apart * apart);
    }
    moments[ch] = static_cast<float>(mean);
    moments[channels + ch] = static_cast<float>(variance);
  }
  moments.back() = static_cast<float>(total);
}

}  // namespace

SharedRows::SharedRows(exchange::Group& group, const gpu::DevicePtr& device, int64_t rows)
    : group_(group), rows_(static_cast<float>(rows)), memory_(device, gpu::MemoryUse::readback) {}

gpu::Buffer SharedRows::step_of_host(ops::Emitter& emit, const gpu::Buffer& step) {
  const gpu::Buffer seen = memory_.allocate(sizeof(ops::StepValues));
  emit.add(gpu::Copy{step, seen});
  return seen;
}

float SharedRows::weight(const gpu::Buffer& step) const {
  return static_cast<float>(step_at(step).valid_rows) / rows_;
}

void SharedRows::emit_means(ops::Emitter& emit, const gpu::Buffer& step, const gpu::Buffer& means) {
  const gpu::Buffer seen = step_of_host(emit, step);
  emit_round_trip(emit.commands(), memory_, {means}, [this, seen](std::span<float> own) {
    std::vector<float> sums(own.size() + 1, weight(seen));
    std::transform(own.begin(), own.end(), sums.begin() + 1,
                   [w = sums[0]](float mean) { return w * mean; });
    group_.all_reduce(std::span(sums));
    std::transform(sums.begin() + 1, sums.end(), own.begin(),
                   [total = sums[0]](float sum) { return sum / total; });
  });
}

void SharedRows::emit_moments(ops::Emitter& emit, const gpu::Buffer& step,
                              const gpu::Buffer& moments) {
  const gpu::Buffer seen = step_of_host(emit, step);
  emit_round_trip(emit.commands(), memory_, {moments}, [this, seen](std::span<float> own) {
    std::vector<float> part{weight(seen)};
    part.insert(part.end(), own.begin(), own.end());
    std::vector<float> all(part.size() * static_cast<size_t>(group_.size()));
    group_.all_gather(std::as_bytes(std::span(part)), std::as_writable_bytes(std::span(all)));
    join(all, own);
  });
}

}  // namespace etr::parallel
