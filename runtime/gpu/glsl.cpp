#include "gpu/glsl.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "core/error.h"

#if ETR_HAS_GLSL
#include <glslang/Include/glslang_c_interface.h>
#include <glslang/Public/ResourceLimits.h>

namespace etr::gpu {
namespace {

// The compiler's global tables, initialised once for the process.
struct Compiler {
  Compiler() { glslang_initialize_process(); }
  ~Compiler() { glslang_finalize_process(); }
  std::mutex mutex;
};

Compiler& compiler() {
  static Compiler the_compiler;
  return the_compiler;
}

constexpr uint64_t kMostPrivateBytes = uint64_t{64} << 10;

// The size of the largest variable of an invocation, at most 2^62.
uint64_t largest_private_bytes(std::span<const uint32_t> words) {
  enum { kBool = 20, kInt, kFloat, kVector, kMatrix, kArray = 28, kStruct = 30, kPointer = 32 };
  enum { kConstant = 43, kVariable = 59, kPrivate = 6, kFunction = 7 };
  constexpr uint64_t kMost = uint64_t{1} << 62;
  const auto times = [](uint64_t size, uint64_t count) {
    return count > 0 && size > kMost / count ? kMost : size * count;
  };
  std::map<uint32_t, uint64_t> bytes, constants;  // of types; values
  std::map<uint32_t, uint32_t> targets;           // of pointers
  uint64_t largest = 0;
  for (size_t at = 5; at < words.size(); at += std::max<uint32_t>(words[at] >> 16, 1)) {
    const auto word = words.subspan(at);
    switch (word[0] & 0xFFFF) {
      case kBool: bytes[word[1]] = 4; break;
      case kInt:
      case kFloat: bytes[word[1]] = word[2] / 8; break;
      case kVector:
      case kMatrix: bytes[word[1]] = times(bytes[word[2]], word[3]); break;
      case kArray: bytes[word[1]] = times(bytes[word[2]], constants[word[3]]); break;
      case kStruct:
        for (uint32_t i = 2; i < word[0] >> 16; ++i)
          bytes[word[1]] = std::min(kMost, bytes[word[1]] + bytes[word[i]]);
        break;
      case kPointer: targets[word[1]] = word[3]; break;
      case kConstant: constants[word[2]] = word[3]; break;
      case kVariable:
        if (word[3] == kPrivate || word[3] == kFunction)
          largest = std::max(largest, bytes[targets[word[1]]]);
        break;
      default: break;
    }
  }
  return largest;
}

using Shader = std::unique_ptr<glslang_shader_t, decltype(&glslang_shader_delete)>;
using Program = std::unique_ptr<glslang_program_t, decltype(&glslang_program_delete)>;

}  // namespace

std::vector<uint32_t> compile_glsl(const std::string& source, const std::string& name) {
  std::scoped_lock lock(compiler().mutex);
  glslang_input_t input{};
  input.language = GLSLANG_SOURCE_GLSL;
  input.stage = GLSLANG_STAGE_COMPUTE;
  input.client = GLSLANG_CLIENT_VULKAN;
  input.client_version = GLSLANG_TARGET_VULKAN_1_1;
  input.target_language = GLSLANG_TARGET_SPV;
  input.target_language_version = GLSLANG_TARGET_SPV_1_3;
  input.code = source.c_str();
  input.default_version = 450;
  input.default_profile = GLSLANG_NO_PROFILE;
  input.messages = GLSLANG_MSG_DEFAULT_BIT;
  input.resource = reinterpret_cast<const glslang_resource_t*>(GetDefaultResources());
  const Shader shader(glslang_shader_create(&input), glslang_shader_delete);
  const auto refuse = [&](const char* log) {
    fail(Code::invalid_argument, name, " does not compile:\n", log);
  };
  if (!glslang_shader_preprocess(shader.get(), &input) ||
      !glslang_shader_parse(shader.get(), &input))
    refuse(glslang_shader_get_info_log(shader.get()));
  const Program program(glslang_program_create(), glslang_program_delete);
  glslang_program_add_shader(program.get(), shader.get());
  if (!glslang_program_link(program.get(),
                            GLSLANG_MSG_SPV_RULES_BIT | GLSLANG_MSG_VULKAN_RULES_BIT))
    refuse(glslang_program_get_info_log(program.get()));
  glslang_program_SPIRV_generate(program.get(), input.stage);
  std::vector<uint32_t> words(glslang_program_SPIRV_get_size(program.get()));
  glslang_program_SPIRV_get(program.get(), words.data());
  if (const uint64_t size = largest_private_bytes(words); size > kMostPrivateBytes)
    fail(Code::invalid_argument, name, " has a variable of ", size,
         " bytes; each invocation may have ", kMostPrivateBytes, ", for which drivers have memory");
  return words;
}

bool can_compile_glsl() { return true; }

}  // namespace etr::gpu

#else

namespace etr::gpu {

std::vector<uint32_t> compile_glsl(const std::string&, const std::string& name) {
  fail(Code::unsupported, name,
       " cannot be compiled: this EchoTrain was built with ECHOTRAIN_GLSL=OFF");
}

bool can_compile_glsl() { return false; }

}  // namespace etr::gpu

#endif
