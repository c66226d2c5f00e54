// Matrix products on the Vulkan device beside OpenBLAS on the same cores; on a CPU device each tile
// with operands loaded in pairs and one by one; the three products of a convolution, and
// convolutions directly and by Winograd's ways (tiles through memory, lines within registers).
//
//   gemm_bench [384 960 ...]
//
// OpenBLAS may not know the processor and fall back to old kernels: set OPENBLAS_CORETYPE
// (SkylakeX, Haswell) to give it its best. The name of the kernels it uses is printed.
#include <cblas.h>
#include <cstdlib>
#include <string>

#include "bench.h"
#include "core/error.h"
#include "core/json.h"
#include "core/rng.h"
#include "gpu/recording.h"
#include "gpu/wide_vectors.h"
#include "ops/conv.h"
#include "ops/gemm_kernels.h"

extern "C" char* openblas_get_corename(void);
extern "C" int openblas_get_num_threads(void);

namespace etr::bench {
namespace {

void fill(const gpu::Buffer& buffer, uint64_t seed) {
  Rng rng(seed);
  auto* values = reinterpret_cast<float*>(buffer.host);
  for (uint64_t i = 0; i < buffer.size_bytes / 4; ++i) values[i] = rng.uniform(-1, 1);
}

void square(gpu::Kernels& kernels, uint32_t n) {
  gpu::Arena arena(kernels.device(), gpu::MemoryUse::upload);
  gpu::CommandList commands;
  ops::Emitter emit(kernels, arena, commands);
  const int64_t side = n;
  const ops::DeviceTensor a = emit.scratch({side, side}), b = emit.scratch({side, side}),
                          c = emit.scratch({side, side});
  fill(a.buffer, 1);
  fill(b.buffer, 2);
  ops::GemmParams params;
  params.m = params.n = params.k = n;
  const int repeats = std::max(1, static_cast<int>(2e9 / (2.0 * n * n * n)));
  for (int i = 0; i < repeats; ++i) ops::emit_gemm(emit, ops::GemmMode::nn, params, a, b, {}, c);
  gpu::Recording recording(kernels.device(), commands);
  std::vector<float> reference(static_cast<size_t>(n) * n);
  const auto* ah = reinterpret_cast<const float*>(a.buffer.host);
  const auto* bh = reinterpret_cast<const float*>(b.buffer.host);
  const auto times = time_in_turn(
      {[&] {
         recording.submit();
         recording.wait();
       },
       [&] {
         for (int i = 0; i < repeats; ++i)
           cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(n),
                       static_cast<int>(n), static_cast<int>(n), 1, ah, static_cast<int>(n), bh,
                       static_cast<int>(n), 0, reference.data(), static_cast<int>(n));
       }},
      9);
  const auto* ch = reinterpret_cast<const float*>(c.buffer.host);
  double worst = 0;
  for (size_t i = 0; i < reference.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(ch[i] - reference[i])));
  const double flop = 2.0 * n * n * n * repeats * 1e-9;
  std::printf(
      "gemm %4u^3      device %7.1f GFLOP/s   OpenBLAS %7.1f GFLOP/s   ratio %5.1f %%   largest "
      "difference %.1e\n",
      n, flop / times[0], flop / times[1], 100 * times[1] / times[0], worst);
}

void convolution(gpu::Kernels& kernels, int64_t batch, int64_t size, int64_t channels,
                 int64_t filters) {
  gpu::Arena arena(kernels.device(), gpu::MemoryUse::device);
  gpu::CommandList set_up;
  ops::Emitter emit(kernels, arena, set_up);
  const ops::OpSpec& op = ops::find_op("conv2d");
  const Options options(op.options, "conv2d", {{"pad", 1}});
  ops::OpCall call{
      options,
      0,
      true,
      {emit.scratch({batch, size, size, channels}), emit.scratch({3, 3, channels, filters})},
      emit.scratch({batch, size, size, filters}),
      {},
      {},
      emit.scratch({batch, size, size, filters}),
      {}};
  const double flop =
      2.0 * static_cast<double>(batch * size * size * channels * filters) * 9 * 1e-9;
  const auto time_of = [&](const std::function<void(ops::Emitter&)>& build) {
    gpu::CommandList commands;
    ops::Emitter e(kernels, arena, commands);
    build(e);
    gpu::Recording recording(kernels.device(), commands);
    return time_in_turn({[&] {
                          recording.submit();
                          recording.wait();
                        }},
                        7)[0];
  };
  const double forward = time_of([&](ops::Emitter& e) { op.forward(call, e); });
  call.input_grads = {emit.scratch(call.inputs[0].shape), {}};
  const double by_input = time_of([&](ops::Emitter& e) { op.backward(call, e); });
  call.input_grads = {{}, emit.scratch(call.inputs[1].shape)};
  const double by_weight = time_of([&](ops::Emitter& e) { op.backward(call, e); });
  std::printf(
      "conv 3x3 [%lld, %lld, %lld, %lld] -> %-4lld forward %6.1f   by input %6.1f   by weight "
      "%6.1f GFLOP/s\n",
      static_cast<long long>(batch), static_cast<long long>(size), static_cast<long long>(size),
      static_cast<long long>(channels), static_cast<long long>(filters), flop / forward,
      flop / by_input, flop / by_weight);
}

// The tiles of a CPU device for a product of one slice, with operands loaded in pairs and one by
// one, in turns.
void pairs(gpu::Kernels& kernels, ops::GemmMode mode, uint32_t m, uint32_t n, uint32_t k) {
  gpu::Arena arena(kernels.device(), gpu::MemoryUse::device);
  gpu::CommandList set_up;
  ops::Emitter emit(kernels, arena, set_up);
  const ops::GemmParams p = ops::product(m, n, k);
  const ops::DeviceTensor a = emit.scratch({m, k}), b = emit.scratch({k, n}),
                          c = emit.scratch({m, n});
  std::vector<std::string> names;
  std::vector<std::unique_ptr<gpu::Recording>> recordings;
  std::vector<std::function<void()>> runs;
  for (ops::GemmKernel kernel :
       ops::kernels_for(*kernels.device(), mode, p, ops::Precision::fp32)) {
    // The last constant of kernels that load an operand in pairs is kPairs.
    if (kernel.loads_a != 2 && kernel.loads_b != 2) continue;
    kernel.slices = 1;
    for (const bool in_pairs : {true, false}) {
      if (!in_pairs) kernel.constants.back() = 0;
      gpu::CommandList commands;
      ops::Emitter one(kernels, arena, commands);
      emit_with(one, kernel, mode, p, a, b, {}, c, 0);
      names.push_back(kernel.shader);
      recordings.push_back(std::make_unique<gpu::Recording>(kernels.device(), commands));
      runs.emplace_back([&recording = *recordings.back()] {
        recording.submit();
        recording.wait();
      });
    }
  }
  const auto times = time_in_turn(runs, 15);
  const double flop = 2e-9 * m * n * k;
  for (size_t i = 0; i < times.size(); i += 2)
    std::printf("%4u x %4u x %4u  %-24s  in pairs %6.1f   one by one %6.1f GFLOP/s   %.2f x\n", m,
                n, k, names[i].c_str(), flop / times[i], flop / times[i + 1],
                times[i + 1] / times[i]);
}

// A 3 x 3 convolution directly and by Winograd's ways, in turns.
void winograd(gpu::Kernels& kernels, uint32_t batch, uint32_t size, uint32_t channels) {
  gpu::Arena arena(kernels.device(), gpu::MemoryUse::device);
  const ops::ConvGeometry g{batch, size, size, channels, size, size, channels, 3, 3, 1, 1, 1, 1, 1};
  const bool lines = lines_fit(*kernels.device(), g);
  std::vector<gpu::CommandList> commands(lines ? 3 : 2);
  ops::Emitter directly(kernels, arena, commands[0]), tiles(kernels, arena, commands[1]);
  const int64_t n = batch, side = size, c = channels;
  const ops::DeviceTensor x = directly.scratch({n, side, side, c}),
                          y = directly.scratch({n, side, side, c}),
                          w = directly.scratch({3, 3, c, c});
  emit_conv_directly(directly, g, x, w, {}, false, y);
  emit_winograd(tiles, g, x, w, false, {}, false, y);
  if (lines) {
    ops::Emitter by_lines(kernels, arena, commands[2]);
    emit_lines(by_lines, g, x, w, false, {}, false, y);
  }
  std::vector<std::unique_ptr<gpu::Recording>> recordings;
  std::vector<std::function<void()>> runs;
  for (const gpu::CommandList& list : commands) {
    recordings.push_back(std::make_unique<gpu::Recording>(kernels.device(), list));
    runs.emplace_back([&recording = *recordings.back()] {
      recording.submit();
      recording.wait();
    });
  }
  const auto times = time_in_turn(runs, 9);
  const double flop = 18e-9 * static_cast<double>(n * side * side * c * c);
  std::printf("conv 3x3 [%u, %u, %u, %u] -> %-4u directly %6.1f GFLOP/s   tiles %6.1f   %.2f x",
              batch, size, size, channels, channels, flop / times[0], flop / times[1],
              times[0] / times[1]);
  if (lines) std::printf("   lines %6.1f   %.2f x", flop / times[2], times[0] / times[2]);
  std::printf("\n");
}

}  // namespace
}  // namespace etr::bench

int main(int argc, char** argv) {
  using namespace etr;
  gpu::prefer_wide_cpu_vectors();
  try {
    gpu::Kernels kernels(std::make_shared<gpu::Device>(gpu::DeviceOptions{}));
    std::printf("device %s; OpenBLAS kernels %s, %d threads\n",
                kernels.device()->info().name.c_str(), openblas_get_corename(),
                openblas_get_num_threads());
    std::vector<uint32_t> sizes;
    for (int i = 1; i < argc; ++i) sizes.push_back(static_cast<uint32_t>(std::atoi(argv[i])));
    if (sizes.empty()) sizes = {384, 960};
    for (const uint32_t n : sizes) bench::square(kernels, n);
    bench::pairs(kernels, ops::GemmMode::nn, 1024, 128, 768);
    bench::pairs(kernels, ops::GemmMode::tn, 768, 128, 1024);
    bench::pairs(kernels, ops::GemmMode::nn, 1, 1024, 3136);
    bench::pairs(kernels, ops::GemmMode::nn, 1, 512, 784);
    bench::convolution(kernels, 128, 32, 3, 32);
    bench::convolution(kernels, 128, 16, 32, 64);
    bench::convolution(kernels, 128, 8, 64, 128);
    bench::winograd(kernels, 64, 32, 16);
    bench::winograd(kernels, 64, 32, 32);
    bench::winograd(kernels, 64, 16, 64);
    bench::winograd(kernels, 32, 28, 128);
    bench::winograd(kernels, 32, 14, 256);
    bench::winograd(kernels, 32, 7, 512);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gemm_bench: %s\n", error.what());
    return 1;
  }
}
