// The Vulkan handles of an Upload. Internal to gpu/.
#pragma once

#include "gpu/upload.h"
#include "gpu/vulkan_device.h"

namespace etr::gpu {

struct Upload::Handles {
  explicit Handles(VulkanDevice& device) : vk(device) {}
  ~Handles();

  void create(const std::vector<Copy>& copies);
  void create_semaphore();
  void record(const std::vector<Copy>& copies);
  void wait();

  VulkanDevice& vk;
  VkCommandPool pool = VK_NULL_HANDLE;
  VkCommandBuffer commands = VK_NULL_HANDLE;
  VkSemaphore done = VK_NULL_HANDLE;
  VkFence fence = VK_NULL_HANDLE;
  bool in_flight = false;  // submitted, and the fence not waited for yet
  bool awaited = true;     // a submission waits, or has waited, for the last signal of `done`
};

}  // namespace etr::gpu
