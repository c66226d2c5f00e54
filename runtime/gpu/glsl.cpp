#include "gpu/glsl.h"

#include <memory>
#include <mutex>

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
