// The SPIR-V modules that the build compiles from shaders/*.comp and embeds in a generated table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace etr::gpu {

struct ShaderCode {
  std::string_view name;  // the variant's name, "gemm_cpu_nn"
  std::span<const uint32_t> words;
  bool by_address;  // takes its buffers as device addresses at the head of the push constants
};

std::span<const ShaderCode> shader_table();

// Returns a checksum of the sources of the kernels with which devices compute products and
// convolutions: those for GPUs, or all, among which CPU devices choose.
std::string_view checksum_of_products(bool of_cpus);

// Return shaders/elementwise.glsl with its dependencies, and pair.glsl, for kernels that are
// compiled at run time.
std::string_view elementwise_glsl();
std::string_view pair_glsl();

}  // namespace etr::gpu
