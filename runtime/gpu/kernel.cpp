#include "gpu/kernel.h"

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "gpu/glsl.h"
#include "gpu/vulkan_kernel.h"

namespace etr::gpu {
namespace {

const ShaderCode* find_shader(std::string_view name) {
  const auto table = shader_table();
  const auto row = std::find_if(table.begin(), table.end(),
                                [&](const ShaderCode& code) { return code.name == name; });
  return row == table.end() ? nullptr : &*row;
}

// Returns the shader's name without the suffix for how this variant takes its buffers.
std::string shader_of(std::string_view name) {
  constexpr std::string_view kAddress = "_address";
  return std::string(name.ends_with(kAddress) ? name.substr(0, name.size() - kAddress.size())
                                              : name);
}

// Whether a module's invocations share values within a subgroup. Their workgroups then consist of
// whole subgroups.
bool uses_subgroups(std::span<const uint32_t> words) {
  constexpr uint32_t kOpCapability = 17, kGroupNonUniform = 61;
  // Capabilities come first, with two words each.
  for (size_t i = 5; i + 1 < words.size() && (words[i] & 0xffff) == kOpCapability; i += 2)
    if (words[i + 1] == kGroupNonUniform) return true;
  return false;
}

std::string key_of(const ShaderCode& code, const std::vector<uint32_t>& constants) {
  std::string out(code.name);
  for (const uint32_t constant : constants) out += cat(" ", constant);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const uint32_t word : code.words) hash = (hash ^ word) * 0x100000001b3;
  return cat(out, " ", std::hex, hash);
}

}  // namespace

Kernel::Kernel(VulkanDevice& device, const ShaderCode& code, const std::vector<uint32_t>& constants,
               size_t binding_count, size_t push_size)
    : vk(device),
      name(shader_of(code.name)),
      by_address(code.by_address),
      bindings(binding_count),
      push_bytes(push_size + (code.by_address ? binding_count * sizeof(uint64_t) : 0)),
      key(key_of(code, constants)),
      words_(code.words.begin(), code.words.end()),
      constants_(constants) {
  try {
    create_layout();
    pipeline = compile(vk.verdicts->of(key) == Verdict::right_plainly);
  } catch (...) {
    release();
    throw;
  }
}

Kernel::~Kernel() { release(); }

void Kernel::create_layout() {
  if (!by_address) {
    std::vector<VkDescriptorSetLayoutBinding> slots(bindings);
    for (uint32_t i = 0; i < bindings; ++i)
      slots[i] = {i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr};
    VkDescriptorSetLayoutCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO};
    info.bindingCount = static_cast<uint32_t>(slots.size());
    info.pBindings = slots.data();
    vk.check(vk.api.CreateDescriptorSetLayout(vk.handle, &info, nullptr, &set_layout),
             "vkCreateDescriptorSetLayout");
  }
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0,
                                  static_cast<uint32_t>(push_bytes)};
  VkPipelineLayoutCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  info.setLayoutCount = set_layout ? 1 : 0;
  info.pSetLayouts = &set_layout;
  info.pushConstantRangeCount = push_bytes ? 1 : 0;
  info.pPushConstantRanges = &range;
  vk.check(vk.api.CreatePipelineLayout(vk.handle, &info, nullptr, &layout),
           "vkCreatePipelineLayout");
}

const spirv::Module& Kernel::module() const {
  if (!module_) module_ = std::make_unique<spirv::Module>(words_, constants_);
  return *module_;
}

void Kernel::compile_plainly() const {
  if (replaced_) return;
  const VkPipeline plain = compile(/*plainly=*/true);
  replaced_ = pipeline.exchange(plain);
}

VkPipeline Kernel::compile(bool plainly) const {
  VkShaderModuleCreateInfo module_info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  module_info.codeSize = words_.size() * sizeof words_[0];
  module_info.pCode = words_.data();
  VkShaderModule module = VK_NULL_HANDLE;
  vk.check(vk.api.CreateShaderModule(vk.handle, &module_info, nullptr, &module),
           "vkCreateShaderModule");

  std::vector<VkSpecializationMapEntry> entries;
  for (uint32_t i = 0; i < constants_.size(); ++i) entries.push_back({i, i * 4, 4});
  const VkSpecializationInfo specialization{static_cast<uint32_t>(entries.size()), entries.data(),
                                            constants_.size() * 4, constants_.data()};
  VkComputePipelineCreateInfo info{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  if (plainly) info.flags = VK_PIPELINE_CREATE_DISABLE_OPTIMIZATION_BIT;
  info.stage = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                nullptr,
                0,
                VK_SHADER_STAGE_COMPUTE_BIT,
                module,
                "main",
                &specialization};
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroups{
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO, nullptr,
      vk.physical.info.subgroup_size};
  if (vk.physical.sets_subgroup_size && uses_subgroups(words_)) {
    info.stage.pNext = &subgroups;
    info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  }
  info.layout = layout;
  VkPipeline made = VK_NULL_HANDLE;
  const VkResult result =
      vk.api.CreateComputePipelines(vk.handle, vk.pipeline_cache, 1, &info, nullptr, &made);
  vk.api.DestroyShaderModule(vk.handle, module, nullptr);
  if (result == VK_ERROR_UNKNOWN || result == VK_ERROR_INVALID_SHADER_NV ||
      result == VK_ERROR_FEATURE_NOT_PRESENT)
    fail(Code::unsupported, "the driver does not compile the kernel '", name, "' (VkResult ",
         static_cast<int>(result), ")");
  vk.check(result, "vkCreateComputePipelines");
  return made;
}

void Kernel::release() {
  if (vk.abandoned) return;
  if (pipeline) vk.api.DestroyPipeline(vk.handle, pipeline, nullptr);
  if (replaced_) vk.api.DestroyPipeline(vk.handle, replaced_, nullptr);
  if (layout) vk.api.DestroyPipelineLayout(vk.handle, layout, nullptr);
  if (set_layout) vk.api.DestroyDescriptorSetLayout(vk.handle, set_layout, nullptr);
}

const std::string& kernel_name(const Kernel& kernel) { return kernel.name; }

Kernels::Kernels(DevicePtr device) : device_(std::move(device)), tuning_(device_->info().kind) {}
Kernels::~Kernels() = default;

size_t Kernels::count() const {
  const std::scoped_lock lock(mutex_);
  return kernels_.size() + from_source_.size();
}

const Kernel& Kernels::get(const std::string& shader, const std::vector<uint32_t>& constants,
                           size_t bindings, size_t push_bytes) {
  std::scoped_lock lock(mutex_);
  auto& slot = kernels_[{shader, constants}];
  if (!slot) {
    const ShaderCode* code = nullptr;
    if (device_->family() == KernelFamily::cpu) code = find_shader(shader + "_address");
    if (!code) code = find_shader(shader);
    if (!code) fail(Code::internal, "there is no shader '", shader, "'");
    slot = std::make_unique<Kernel>(device_->vk(), *code, constants, bindings, push_bytes);
  }
  if (slot->bindings != bindings)
    fail(Code::internal, "shader '", shader, "' is dispatched with ", bindings,
         " buffers here and with ", slot->bindings, " elsewhere");
  return *slot;
}

bool Kernels::trusts(const std::string& shader, const std::vector<uint32_t>& constants,
                     bool at_choice, const std::function<bool()>& check) {
  std::scoped_lock lock(checks_mutex_);
  const Key key{shader, constants};
  const auto known = trusted_.find(key);
  if (known != trusted_.end()) return known->second;
  const std::string& wrong = device_->options().lowered.wrong_kernels;
  const std::string result = "a slower one takes its place where there is one";
  bool right = false;
  try {
    right = check() && (wrong.empty() || !shader.starts_with(wrong));
  } catch (const Error& error) {  // other errors say nothing of the kernel
    if (error.code() != Code::unsupported) throw;
    log_line(LogLevel::warning, cat(error.what(), "; ", result));
    return trusted_[key] = false;
  }
  if (!right && at_choice)
    log_line(LogLevel::info, cat("'", device_->info().name, "' does not compute the kernel '",
                                 shader, "' to float32's accuracy; it is not used"));
  else if (!right)
    log_line(LogLevel::warning,
             cat("the driver of '", device_->info().name, "' (", device_->info().driver,
                 ") computes the kernel '", shader, "' wrongly; ", result));
  return trusted_[key] = right;
}

const Kernel& Kernels::from_source(const std::string& source, const std::string& name,
                                   size_t bindings, size_t push_bytes, bool by_address) {
  std::scoped_lock lock(mutex_);
  auto& slot = from_source_[source];
  if (!slot) {
    const std::vector<uint32_t> words = compile_glsl(source, name);
    const ShaderCode code{name, words, by_address};
    slot = std::make_unique<Kernel>(device_->vk(), code, std::vector<uint32_t>{}, bindings,
                                    push_bytes);
  }
  return *slot;
}

}  // namespace etr::gpu
