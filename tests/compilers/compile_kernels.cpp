// Compiles every kernel of a family, and runs none: for drivers that compile for a device that is
// not there.
//
//   compile_kernels tiled|matrix
//
// Writes "=== NAME" to stderr before each, among what the driver says there; fails with the names
// of those that do not compile.
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "core/error.h"
#include "gpu/kernel.h"
#include "gpu/shader_table.h"
#include "ops/gemm_kernels.h"

namespace {

using namespace etr;

int failures = 0;

void compile(gpu::Kernels& kernels, const std::string& label, const std::string& shader,
             const std::vector<uint32_t>& constants, size_t bindings, size_t push_bytes) {
  std::fprintf(stderr, "=== %s\n", label.c_str());
  try {
    kernels.get(shader, constants, bindings, push_bytes);
  } catch (const Error& error) {
    std::printf("%s: %s\n", label.c_str(), error.what());
    ++failures;
  }
}

void compile_products(gpu::Kernels& kernels) {
  using ops::GemmMode;
  ops::GemmParams p = ops::product(4096, 4096, 4096);
  p.batch = 4, p.h = p.w = p.oh = p.ow = 32, p.c = p.kc = 64, p.kh = p.kw = 3;
  std::set<std::string> seen;
  for (const GemmMode mode :
       {GemmMode::nn, GemmMode::tn, GemmMode::conv, GemmMode::conv_dx, GemmMode::conv_dw})
    for (const auto precision : {ops::Precision::fp32, ops::Precision::bf16, ops::Precision::fp16})
      for (const auto& kernel : ops::kernels_for(*kernels.device(), mode, p, precision))
        if (seen.insert(kernel.name()).second)
          compile(kernels, kernel.name(), kernel.shader, kernel.constants, 5,
                  sizeof(ops::GemmParams));
}

// With more bindings and push constants than any has, and workgroups of 64. Attention also for the
// heads of usual Transformers.
void compile_others(gpu::Kernels& kernels) {
  for (const gpu::ShaderCode& code : gpu::shader_table()) {
    const std::string name(code.name);
    const bool tiled = name.starts_with("attention_tiled");
    const bool for_cpus =
        name.starts_with("conv_line") || (name.starts_with("attention") && !tiled);
    if (code.by_address || name.starts_with("gemm_") || for_cpus) continue;
    if (!tiled) compile(kernels, name, name, {64}, 14, 100);
    for (const uint32_t head : {32, 64, 128, 256})
      if (tiled)
        compile(kernels, cat(name, " ", head), name,
                {head > 128 ? 256u : 128u, head, head > 64, 64}, 14, 100);
    if (tiled) compile(kernels, cat(name, " 256, narrow"), name, {64, 256, 1, 32}, 14, 100);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string family = argc > 1 ? argv[1] : "tiled";
  gpu::DeviceOptions options;
  options.family = family == "matrix" ? gpu::KernelFamily::matrix : gpu::KernelFamily::tiled;
  try {
    // Never closed: Mesa's devices without hardware cannot be.
    auto& kernels = *new gpu::Kernels(std::make_shared<gpu::Device>(options));
    std::printf("%s\n", kernels.device()->info().name.c_str());
    compile_products(kernels);
    if (family == "tiled") compile_others(kernels);
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
    failures = 1;
  }
  std::fflush(nullptr);
  std::_Exit(failures == 0 ? 0 : 1);
}
