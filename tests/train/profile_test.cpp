// What profiles measure kernels by.
#include "train/profile.h"

#include <numeric>

#include "gpu/run_once.h"
#include "graph/parameters.h"
#include "ops/op.h"
#include "support/device.h"

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

}  // namespace
}  // namespace etr::test
