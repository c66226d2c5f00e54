// The handles of an Upload, for files of this room.
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
  bool in_flight = false;  // until the fence was waited for
  bool awaited = true;     // by a submission, once for each time that `done` is signalled
};

}  // namespace etr::gpu
