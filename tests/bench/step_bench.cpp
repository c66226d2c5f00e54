// A training step of a job's model on random data: time, examples per second, device memory.
//
//   step_bench JOB.json BATCH H W C [key=value ...]
#include <cstdlib>
#include <cstring>

#include "bench.h"
#include "core/error.h"
#include "core/rng.h"
#include "gpu/wide_vectors.h"
#include "train/job.h"
#include "train/learner.h"

int main(int argc, char** argv) {
  using namespace etr;
  gpu::prefer_wide_cpu_vectors();
  if (argc < 6) {
    std::fprintf(stderr, "usage: step_bench JOB.json BATCH H W C [key=value ...]\n");
    return 2;
  }
  try {
    const train::Job job = train::Job::load(argv[1], {argv + 6, argv + argc});
    auto kernels =
        std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(gpu::DeviceOptions{}));
    train::Learner learner(kernels, {job.model(), job.optimizer(), job.schedule(), 1, 1000000});
    const int64_t n = std::atoll(argv[2]);
    pipeline::Item batch;
    Tensor image(DType::f32, {n, std::atoll(argv[3]), std::atoll(argv[4]), std::atoll(argv[5])}),
        label(DType::i32, {n});
    Rng rng(1);
    for (float& v : image.mutable_view<float>()) v = rng.normal();
    for (int32_t& v : label.mutable_view<int32_t>()) v = static_cast<int32_t>(rng.below(10));
    batch.set("image", image);
    batch.set("label", label);
    std::vector<double> busy;
    const double first = bench::time_once([&] {
      learner.step(batch);
      learner.take_metrics(true);
    });
    constexpr int kSteps = 30;
    const double seconds = bench::time_once([&] {
      for (int i = 0; i < kSteps; ++i) {
        learner.step(batch);
        for (const auto& m : learner.take_metrics(i + 1 == kSteps)) busy.push_back(m.busy_seconds);
      }
    });
    std::printf(
        "%s on %s: batch %lld, %.1f ms a step, %.0f examples/s; device busy %.1f ms a step; first "
        "step %.2f s; "
        "%lld parameters, %.0f MB of device memory\n",
        job.name().c_str(), kernels->device()->info().name.c_str(), static_cast<long long>(n),
        1000 * seconds / kSteps, static_cast<double>(n) * kSteps / seconds,
        1000 * bench::median(busy), first, static_cast<long long>(learner.trainable()),
        static_cast<double>(learner.device_bytes()) * 1e-6);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "step_bench: %s\n", error.what());
    return 1;
  }
}
