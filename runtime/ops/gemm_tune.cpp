// Which kernel is fastest for a product: tried, one after the other, several times.
#include <algorithm>
#include <chrono>
#include <limits>

#include "core/error.h"
#include "gpu/recording.h"
#include "ops/gemm_kernels.h"

namespace etr::ops {
namespace {

constexpr int kRounds =
    7;  // each candidate runs in every one, so that all see the machine's bad moments
constexpr double kLeastSeconds = 1e-3;  // of a run: shorter ones are repeated
constexpr double kHopeless = 2;         // times the best: such a candidate is not run again
constexpr double kLeastGain = 0.97;  // of the usual kernel's time; noise is no reason for another

// A kernel's commands, `times` over in a recording.
struct Candidate {
  std::string name;
  gpu::CommandList commands;
  int times = 0;
  std::unique_ptr<gpu::Recording> recording = nullptr;
  double seconds = std::numeric_limits<double>::infinity();  // of one time; the best so far

  void record(const gpu::DevicePtr& device, int wanted) {
    if (wanted == times) return;
    gpu::CommandList all;
    for (int i = 0; i < wanted; ++i) all.insert(all.end(), commands.begin(), commands.end());
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

int64_t elements_of_a(GemmMode mode, const GemmParams& p) {
  if (mode == GemmMode::nn || mode == GemmMode::tn) return int64_t{p.m} * p.k;
  if (mode == GemmMode::conv_dx) return int64_t{p.batch} * p.oh * p.ow * p.groups * p.kc;
  return int64_t{p.batch} * p.h * p.w * p.groups * p.c;
}

}  // namespace

std::string measure_kernels(gpu::Kernels& kernels, GemmMode mode, const GemmParams& p,
                            Precision precision) {
  gpu::Arena memory(kernels.device(), gpu::MemoryUse::device);
  gpu::CommandList commands;
  Emitter emit(kernels, memory, commands);
  emit.set_label("tuning");
  emit.set_precision(precision);
  const DeviceTensor a = emit.scratch({elements_of_a(mode, p)});
  const DeviceTensor b = emit.scratch({p.k, p.groups * p.n});
  const DeviceTensor c = emit.scratch({p.line_step, p.m, p.groups * p.n});
  for (const DeviceTensor& operand : {a, b}) emit.add(gpu::Fill{operand.buffer, 0x3F800000});
  gpu::run_once(kernels.device(), commands);

  std::vector<Candidate> candidates;
  for (GemmKernel& kernel : kernels_for(*kernels.device(), mode, p, precision)) {
    if (!trusted(kernels, kernel, mode)) continue;
    for (const uint32_t slices : slices_for(kernel, mode, p)) {
      kernel.slices = slices;
      commands.clear();
      emit_with(emit, kernel, mode, p, a, b, {}, c, 0);
      candidates.push_back({kernel.name(), commands});
    }
  }
  if (candidates.size() < 2) return "";
  const auto round = [&] {
    for (Candidate& candidate : candidates) candidate.run();
  };
  for (Candidate& candidate : candidates) candidate.record(kernels.device(), 1);
  round();  // the first time, for which a driver may have to prepare
  round();
  const double best_so_far =
      std::min_element(candidates.begin(), candidates.end(), faster)->seconds;
  const std::string usual = candidates.front().name;
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return candidate.seconds > kHopeless * best_so_far && candidate.name != usual;
  });
  const int times = static_cast<int>(std::clamp(kLeastSeconds / best_so_far, 1.0, 100.0));
  for (Candidate& candidate : candidates) candidate.record(kernels.device(), times);
  for (int i = 0; i < kRounds; ++i) round();
  const Candidate& best = *std::min_element(candidates.begin(), candidates.end(), faster);
  return best.seconds < kLeastGain * candidates.front().seconds ? best.name : usual;
}

}  // namespace etr::ops
