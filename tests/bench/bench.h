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

// Times of one body, or ratios of two, one value per round.
class Times {
 public:
  void add(double value) { values_.push_back(value); }
  double median() const { return bench::median(values_); }
  double quantile(double share) const {
    std::vector<double> sorted = values_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
  }
  Times over(const Times& other) const {
    Times out;
    for (size_t i = 0; i < values_.size(); ++i) out.add(values_[i] / other.values_[i]);
    return out;
  }

 private:
  std::vector<double> values_;
};

// Runs bodies in turn, `rounds` times each after one warm-up round, and returns their times.
inline std::vector<Times> times_in_turn(const std::vector<std::function<void()>>& bodies,
                                        int rounds) {
  std::vector<Times> times(bodies.size());
  for (int round = -1; round < rounds; ++round)
    for (size_t i = 0; i < bodies.size(); ++i) {
      const double seconds = time_once(bodies[i]);
      if (round >= 0) times[i].add(seconds);
    }
  return times;
}

// Returns the medians of these times.
inline std::vector<double> time_in_turn(const std::vector<std::function<void()>>& bodies,
                                        int rounds) {
  std::vector<double> out;
  for (const Times& times : times_in_turn(bodies, rounds)) out.push_back(times.median());
  return out;
}

}  // namespace etr::bench
