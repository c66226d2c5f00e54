// The Vulkan handles behind a Kernel. Only files of this room include this header.
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
  const size_t bindings;                              // buffers, however they are passed
  const size_t push_bytes;                            // with addresses, where the shader takes them
  const std::string key;  // tells it from all other kernels, also those of other releases
  VkDescriptorSetLayout set_layout = VK_NULL_HANDLE;  // null when by_address
  VkPipelineLayout layout = VK_NULL_HANDLE;
  // Of the next recording: compile_plainly() puts another into its place.
  mutable std::atomic<VkPipeline> pipeline = VK_NULL_HANDLE;

  // For gpu/comparison.h, one thread at a time.
  const spirv::Module& module()
      const;                     // throws Error(unsupported) for one that the host does not run
  void compile_plainly() const;  // again, without the driver's optimizer
  mutable std::atomic<bool> beyond_host = false;  // it was tried in vain to run it there

 private:
  void create_layout();
  VkPipeline compile(bool plainly) const;
  void release();

  const std::vector<uint32_t> words_, constants_;
  mutable std::unique_ptr<spirv::Module> module_;
  mutable VkPipeline replaced_ = VK_NULL_HANDLE;  // by another; recordings may still have it
};

}  // namespace etr::gpu
