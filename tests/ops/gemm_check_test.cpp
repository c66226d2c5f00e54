// Kernels are compared with the host before they are used, and replaced where they are wrong.
#include <mutex>

#include "core/error.h"
#include "core/log.h"
#include "gpu/recording.h"
#include "graph/parameters.h"
#include "ops/gemm_check.h"
#include "support/device.h"

namespace etr::test {
namespace {

using ops::GemmKernel;
using ops::GemmMode;

constexpr std::pair<GemmMode, const char*> kModes[] = {{GemmMode::nn, "nn"},
                                                       {GemmMode::tn, "tn"},
                                                       {GemmMode::conv, "conv"},
                                                       {GemmMode::conv_dx, "conv_dx"},
                                                       {GemmMode::conv_dw, "conv_dw"}};

GemmKernel tiled(const char* mode) { return {cat("gemm_tiled_", mode), {}, 64, 64, 1}; }

TEST(GemmCheck, TellsRightFromWrong) {
  gpu::Kernels& k = kernels(gpu::KernelFamily::tiled);
  for (const auto& [mode, name] : kModes)
    for (const auto& [other, other_name] : kModes)
      EXPECT_EQ(ops::computes_rightly(k, tiled(other_name), mode), mode == other)
          << other_name << " for " << name;
}

// All tiles and unrollings, also those that no model in the tests happens to use.
TEST(GemmCheck, EveryKernelOfTheCpuFamilyIsRight) {
  gpu::Kernels& k = kernels();
  if (k.device()->family() != gpu::KernelFamily::cpu) return;  // it cannot run them
  const uint32_t lanes = k.device()->info().subgroup_size;
  const struct {
    uint32_t columns, rows8, rows16;
  } tiles[] = {{64, 24, 32}, {32, 48, 64}, {16, 48, 128}};
  for (const auto& [mode, name] : kModes)
    for (const auto& tile : tiles)
      for (const auto& constants : std::vector<std::vector<uint32_t>>{{0, 1}, {0, 2}, {1, 1}}) {
        if (mode == GemmMode::conv_dw && constants[1] == 2) continue;  // it walks by fours
        const GemmKernel kernel{cat("gemm_cpu_", name, "_", lanes, "_", tile.columns), constants,
                                lanes == 8 ? tile.rows8 : tile.rows16, tile.columns, 16};
        EXPECT_TRUE(ops::computes_rightly(k, kernel, mode))
            << kernel.shader << " " << constants[0] << constants[1];
      }
}

// [70, 9] by [9, 5] of ones.
std::vector<float> product_on(gpu::Kernels& k) {
  gpu::Arena arena(k.device(), gpu::MemoryUse::device);
  gpu::CommandList commands;
  ops::Emitter emit(k, arena, commands);
  const auto ones = [&](const Shape& shape) {
    const ops::DeviceTensor tensor = emit.scratch(shape);
    emit.add(gpu::Fill{tensor.buffer, 0x3F800000});
    return tensor;
  };
  const ops::DeviceTensor c = emit.scratch({70, 5});
  emit_gemm(emit, GemmMode::nn, ops::product(70, 5, 9), ones({70, 9}), ones({9, 5}), {}, c);
  gpu::run_once(k.device(), commands);
  const Tensor out = graph::download(k.device(), c);
  return {out.view<float>().begin(), out.view<float>().end()};
}

TEST(GemmCheck, AnotherKernelTakesThePlaceOfAWrongOne) {
  static std::vector<std::string> lines;
  lines.clear();
  set_log_hook([](LogLevel level, const char* message) {
    if (level >= LogLevel::warning) lines.emplace_back(message);
  });
  gpu::DeviceOptions options = device_options();
  options.lowered.wrong_kernels = "gemm_cpu";
  gpu::Kernels some(std::make_shared<gpu::Device>(options));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(product_on(some), std::vector<float>(350, 9.0f));
  if (some.device()->family() == gpu::KernelFamily::cpu) {
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("'gemm_cpu_nn_"), std::string::npos) << lines[0];
    EXPECT_NE(lines[0].find("wrongly; a slower one takes its place"), std::string::npos);
  } else {
    EXPECT_TRUE(lines.empty());
  }
  set_log_hook(nullptr);

  options.lowered.wrong_kernels = "gemm_";
  gpu::Kernels none(std::make_shared<gpu::Device>(options));
  try {
    product_on(none);
    FAIL() << "there was no right kernel";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::device);
    EXPECT_NE(std::string(error.what()).find("'gemm_tiled_nn' wrongly"), std::string::npos);
  }
}

}  // namespace
}  // namespace etr::test
