// What profiles measure kernels by.
#include "train/profile.h"

#include <numeric>

#include "core/json.h"
#include "gpu/run_once.h"
#include "graph/parameters.h"
#include "ops/op.h"
#include "support/device.h"
#include "support/submissions.h"

namespace etr::test {
namespace {

TEST(Roof, OfMemoryIsThatOfACopy) {
  gpu::Kernels& k = kernels(gpu::KernelFamily::tiled);
  gpu::Arena arena(k.device(), gpu::MemoryUse::device);
  gpu::CommandList commands;
  ops::Emitter emit(k, arena, commands);
  constexpr uint32_t kVectors = 1001;
  const ops::DeviceTensor x = emit.scratch({4 * kVectors}), y = emit.scratch(x.shape);
  Tensor host(DType::f32, x.shape);
  std::iota(host.mutable_view<float>().begin(), host.mutable_view<float>().end(), 0.5f);
  graph::upload(k.device(), host, x);
  emit.for_each("roof_copy", {ops::reads(x), ops::writes(y)}, kVectors, kVectors);
  gpu::run_once(k.device(), commands);
  const Tensor out = graph::download(k.device(), y);
  for (uint32_t i = 0; i < 4 * kVectors; ++i)
    ASSERT_EQ(out.view<float>()[i], static_cast<float>(i) + 0.5f);
}

TEST(Roof, IsMeasuredInEveryFamily) {
  for (const gpu::KernelFamily family : families()) {
    const train::Roof roof = train::measure_roof(kernels(family));
    EXPECT_GT(roof.flops_per_s, 1e8) << family_name(family);
    EXPECT_GT(roof.bytes_per_s, 1e8) << family_name(family);
  }
}

TEST(Profile, IsMeasuredInSubmissionsOfTolerableLength) {
  gpu::DeviceOptions options = device_options();
  options.lowered.watchdog = true;
  options.longest_submit_seconds = 1e-9;
  gpu::Kernels k(std::make_shared<gpu::Device>(options));
  gpu::Arena arena(k.device(), gpu::MemoryUse::device);
  const gpu::Buffer x = arena.allocate(4096);
  const auto submitted = [&](size_t commands) {
    const Submissions submissions(*k.device());
    const Json profile =
        train::profile_commands(k, gpu::CommandList(commands, gpu::Fill{x, 0}), /*runs=*/1);
    EXPECT_EQ(profile["traceEvents"].size(), commands);
    return submissions.count();
  };
  // Twice each: the first run compiles. A GPU repeats what the roof is measured with as needed.
  if (const int one = submitted(1); k.device()->info().kind == gpu::DeviceKind::cpu)
    EXPECT_EQ(submitted(10), one + 2 * 9);
  else
    EXPECT_GE(submitted(10), 2 * 10);
}

}  // namespace
}  // namespace etr::test
