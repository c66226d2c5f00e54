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

int repetitions(double seconds) {
  return static_cast<int>(std::clamp(kLeastSeconds / seconds, 1.0, 100.0));
}

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

// Runs a way until the clocks of a GPU that was idle have risen.
void warm_up(gpu::Kernels& kernels, const Way& way) {
  constexpr std::chrono::milliseconds kRise{400};
  if (kernels.device()->info().kind == gpu::DeviceKind::cpu) return;
  Candidate busy{&way};
  busy.record(kernels.device(), 1);
  busy.run();
  busy.record(kernels.device(), repetitions(busy.seconds));
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < kRise) busy.run();
}

}  // namespace

void WayMemory::rewind() {
  for (Block& block : blocks_) block.taken = false;
}

gpu::Buffer WayMemory::allocate(uint64_t size_bytes) {
  Block* best = nullptr;
  for (Block& block : blocks_) {
    const uint64_t bytes = block.buffer.size_bytes;
    if (!block.taken && bytes >= size_bytes && (!best || bytes < best->buffer.size_bytes))
      best = &block;
  }
  if (!best) best = &blocks_.emplace_back(Block{arena_.allocate(size_bytes)});
  best->taken = true;
  return best->buffer.slice(0, size_bytes);
}

std::vector<double> time_of_each(gpu::Kernels& kernels, const std::vector<Way>& ways) {
  if (ways.empty()) return {};
  std::vector<Candidate> candidates;
  for (const Way& way : ways) candidates.push_back({&way});
  std::vector<Candidate*> running;
  for (Candidate& candidate : candidates) running.push_back(&candidate);
  const auto round = [&] {
    for (Candidate* candidate : running) candidate->run();
  };
  const auto record = [&](int times) {
    for (Candidate* candidate : running) candidate->record(kernels.device(), times);
  };
  warm_up(kernels, ways.front());
  record(1);
  round();  // a driver may have to prepare on first use
  round();
  double best = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) best = std::min(best, candidate.seconds);
  std::erase_if(running, [&](const Candidate* candidate) {
    return candidate->seconds > kHopeless * best && candidate != running.front();
  });
  record(repetitions(best));
  for (int i = 0; i < kRounds; ++i) round();
  std::vector<double> out;
  for (const Candidate& candidate : candidates) out.push_back(candidate.seconds);
  return out;
}

std::string fastest_of(gpu::Kernels& kernels, const std::vector<Way>& ways) {
  const std::vector<double> seconds = time_of_each(kernels, ways);
  const auto best = std::min_element(seconds.begin(), seconds.end());
  return *best < kLeastGain * seconds.front()
             ? ways[static_cast<size_t>(best - seconds.begin())].name
             : ways.front().name;
}

}  // namespace etr::ops
