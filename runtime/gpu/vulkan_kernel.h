// The Vulkan handles behind a Kernel. Only files of this room include this header.
#pragma once

#include "gpu/kernel.h"
#include "gpu/shader_table.h"
#include "gpu/vulkan_device.h"

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
  VkDescriptorSetLayout set_layout = VK_NULL_HANDLE;  // null when by_address
  VkPipelineLayout layout = VK_NULL_HANDLE;
  VkPipeline pipeline = VK_NULL_HANDLE;

 private:
  void create(const ShaderCode& code, const std::vector<uint32_t>& constants);
  void create_layout();
  void release();
};

}  // namespace etr::gpu
