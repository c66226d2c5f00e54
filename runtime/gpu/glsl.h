// GLSL to SPIR-V while the program runs, for operations that a user writes and for chains of operations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace etr::gpu {

// Compiles a compute shader for Vulkan 1.1. Throws Error(invalid_argument) with the compiler's messages, in which
// `name` stands for the source, or Error(unsupported) where can_compile_glsl() is false. Any thread; calls wait for each
// other.
std::vector<uint32_t> compile_glsl(const std::string& source, const std::string& name);

bool can_compile_glsl();  // whether this build has a compiler

}  // namespace etr::gpu
