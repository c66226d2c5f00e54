// Small helpers of the benchmarks: repeated, interleaved timing, so that both sides of a ratio see
// the same moments of a noisy machine.
#pragma once

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "core/clock.h"

namespace etr::bench {

inline double time_once(const std::function<void()>& body) {
  const int64_t begin = now_ns();
  body();
  return seconds_between(begin, now_ns());
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Median times of bodies run in turn, `rounds` times each, after one warm-up round.
inline std::vector<double> time_in_turn(const std::vector<std::function<void()>>& bodies,
                                        int rounds) {
  std::vector<std::vector<double>> times(bodies.size());
  for (int round = -1; round < rounds; ++round)
    for (size_t i = 0; i < bodies.size(); ++i) {
      const double seconds = time_once(bodies[i]);
      if (round >= 0) times[i].push_back(seconds);
    }
  std::vector<double> out;
  for (auto& t : times) out.push_back(median(t));
  return out;
}

}  // namespace etr::bench
