#include "gpu/judge.h"

#include <bit>
#include <cmath>

#include "core/error.h"

namespace etr::gpu {
namespace {

using State = spirv::Storage::State;

constexpr double kTolerance = 1e-3;

bool close(float host, float device, double most) {
  if (std::isnan(host) || std::isnan(device)) return std::isnan(host) && std::isnan(device);
  if (host == device) return true;
  const double size = std::abs(double{host});
  return std::abs(double{host} - double{device}) <= most + kTolerance * size && std::isfinite(size);
}

template <typename Pair>
Comparison different(const Pair& pair) {
  return {Comparison::Result::different,
          cat("word ", pair.word, " of a buffer is ", pair.device, " instead of ", pair.host)};
}

}  // namespace

void Judge::look_at(const spirv::Storage::Page& page, std::span<const uint32_t> device,
                    uint64_t first_word) {
  for (size_t i = 0; i < page.words.size(); ++i) {
    const State state = page.states[i];
    if (state == State::fetched) continue;
    const uint32_t host = page.words[i], other = device[i];
    ++written_;
    const int sign_bits = state == State::written_float ? 1 : 0;  // -0 is 0
    if (host << sign_bits || other << sign_bits) ++not_zero_;
    if (state == State::written_float)
      floats_.push_back({first_word + i, std::bit_cast<float>(host), std::bit_cast<float>(other)});
    else if (host != other)
      unequal_.push_back({first_word + i, host, other});
  }
}

// Returns the root mean square of the finite floats that the host wrote.
double Judge::size_of_floats() const {
  double squares = 0;
  uint64_t count = 0;
  for (const Float& pair : floats_)
    if (std::isfinite(pair.host)) {
      squares += double{pair.host} * double{pair.host};
      ++count;
    }
  return count ? std::sqrt(squares / static_cast<double>(count)) : 0;
}

Comparison Judge::verdict() const {
  const bool is_one_of_few = unequal_.size() == 1 && written_ < 100;
  if (unequal_.size() > written_ / 100 && !is_one_of_few) return different(unequal_.front());
  const double most = kTolerance * size_of_floats();
  for (const Float& pair : floats_)
    if (!close(pair.host, pair.device, most)) return different(pair);
  const bool proves = not_zero_ && !is_one_of_few;
  return {proves ? Comparison::Result::equal : Comparison::Result::empty, ""};
}

}  // namespace etr::gpu
