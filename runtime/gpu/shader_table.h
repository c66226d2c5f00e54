// The SPIR-V modules that the build compiled from shaders/*.comp and embedded (generated table).
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

// shaders/elementwise.glsl with what it needs, for kernels that are made while the program runs.
std::string_view elementwise_glsl();

}  // namespace etr::gpu
