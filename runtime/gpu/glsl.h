// Compiles GLSL to SPIR-V at run time, for user-written operations and for fused chains of
// operations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace etr::gpu {

// Compiles a compute shader for Vulkan 1.1. `name` stands for the source in the compiler's
// messages. Throws Error(invalid_argument) with these messages, or Error(unsupported) if
// can_compile_glsl() is false. May be called from any thread; calls are serialized.
std::vector<uint32_t> compile_glsl(const std::string& source, const std::string& name);

bool can_compile_glsl();  // whether this build has a compiler

}  // namespace etr::gpu
