// The Vulkan handles of a Kernel. Internal to gpu/.
#pragma once

#include <atomic>
#include <memory>

#include "gpu/kernel.h"
#include "gpu/shader_table.h"
#include "gpu/vulkan_device.h"
#include "spirv/module.h"

namespace etr::gpu {

class Kernel {
 public:
  Kernel(VulkanDevice& vk, const ShaderCode& code, const std::vector<uint32_t>& constants,
         size_t bindings, size_t push_bytes);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  VulkanDevice& vk;
  const std::string name;
  const bool by_address;
  const size_t bindings;    // number of buffers, however they are passed
  const size_t push_bytes;  // includes the addresses if by_address
  // Identifies the kernel among all kernels, also those of other releases.
  const std::string key;
  VkDescriptorSetLayout set_layout = VK_NULL_HANDLE;  // null when by_address
  VkPipelineLayout layout = VK_NULL_HANDLE;
  // Used by the next recording: compile_plainly() may replace it.
  mutable std::atomic<VkPipeline> pipeline = VK_NULL_HANDLE;

  // The following serve gpu/comparison.h, one thread at a time.
  //
  // Throws Error(unsupported) for a module that the host cannot run.
  const spirv::Module& module() const;
  void compile_plainly() const;  // compiles it again without the driver's optimizer
  mutable std::atomic<bool> beyond_host = false;  // an attempt to run it on the host has failed

 private:
  void create_layout();
  VkPipeline compile(bool plainly) const;
  void release();

  const std::vector<uint32_t> words_, constants_;
  mutable std::unique_ptr<spirv::Module> module_;
  // The former pipeline, which recordings may still use.
  mutable VkPipeline replaced_ = VK_NULL_HANDLE;
};

}  // namespace etr::gpu
