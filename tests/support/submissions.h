// Counts submissions to a device's queue.
#pragma once

#include <atomic>
#include <utility>

#include "gpu/vulkan_device.h"

namespace etr::test {

// Only one object at a time; its destructor restores the device.
class Submissions {
 public:
  explicit Submissions(gpu::Device& device) : api_(device.vk().api) {
    submit_ = std::exchange(api_.QueueSubmit, &counted);
    count_ = 0;
  }
  ~Submissions() { api_.QueueSubmit = submit_; }
  Submissions(const Submissions&) = delete;
  Submissions& operator=(const Submissions&) = delete;

  int count() const { return count_; }

 private:
  static VkResult VKAPI_CALL counted(VkQueue queue, uint32_t count, const VkSubmitInfo* infos,
                                     VkFence fence) {
    count_ += static_cast<int>(count);
    return submit_(queue, count, infos, fence);
  }

  gpu::VulkanApi& api_;
  static inline PFN_vkQueueSubmit submit_ = nullptr;
  static inline std::atomic<int> count_ = 0;
};

}  // namespace etr::test
