#include "ops/measure.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>

#include "gpu/recording.h"

namespace etr::ops {
namespace {

// Each candidate runs in every round, so that all see the machine's slow moments alike.
constexpr int kRounds = 7;
constexpr double kLeastSeconds = 1e-3;  // least time of a run: shorter ones are repeated
constexpr double kHopeless = 2;  // a candidate that takes this many times the best is dropped
// Fraction of the default's time that another way must beat, so that noise decides nothing.
constexpr double kLeastGain = 0.97;

// A recording with a way's commands repeated `times` times.
struct Candidate {
  const Way* way;
  int times = 0;
  std::unique_ptr<gpu::Recording> recording = nullptr;
  double seconds = std::numeric_limits<double>::infinity();  // for one repetition; the best so far

  void record(const gpu::DevicePtr& device, int wanted) {
    if (wanted == times) return;
    gpu::CommandList all;
    for (int i = 0; i < wanted; ++i)
      all.insert(all.end(), way->commands.begin(), way->commands.end());
    recording = std::make_unique<gpu::Recording>(device, all);
    times = wanted;
  }
  void run() {
    const auto begin = std::chrono::steady_clock::now();
    recording->submit();
    recording->wait();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    const double busy = recording->busy_seconds();
    seconds = std::min(seconds, (busy > 0 ? busy : wall.count()) / times);
  }
};

bool faster(const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; }

}  // namespace

std::string fastest_of(gpu::Kernels& kernels, const std::vector<Way>& ways) {
  std::vector<Candidate> candidates;
  for (const Way& way : ways) candidates.push_back({&way});
  const auto round = [&] {
    for (Candidate& candidate : candidates) candidate.run();
  };
  for (Candidate& candidate : candidates) candidate.record(kernels.device(), 1);
  round();  // warm-up: a driver may have to prepare on first use
  round();
  const double best_so_far =
      std::min_element(candidates.begin(), candidates.end(), faster)->seconds;
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return candidate.seconds > kHopeless * best_so_far && candidate.way != &ways.front();
  });
  const int times = static_cast<int>(std::clamp(kLeastSeconds / best_so_far, 1.0, 100.0));
  for (Candidate& candidate : candidates) candidate.record(kernels.device(), times);
  for (int i = 0; i < kRounds; ++i) round();
  const Candidate& best = *std::min_element(candidates.begin(), candidates.end(), faster);
  return best.seconds < kLeastGain * candidates.front().seconds ? best.way->name
                                                                : ways.front().name;
}

}  // namespace etr::ops
