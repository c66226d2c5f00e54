// The time-out of POSIX's poll(), for platform*_posix.cpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/platform_process.h"

namespace etr::platform {

// Rounds up. Returns -1, which is for ever, for Deadline::max().
inline int milliseconds_until(Deadline deadline) {
  if (deadline == Deadline::max()) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000));
}

}  // namespace etr::platform
