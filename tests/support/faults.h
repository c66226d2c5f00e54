// Failures of the Vulkan driver, made on purpose.
#pragma once

#include "gpu/device.h"
#include "gpu/vulkan_device.h"

namespace etr::test {

// Counts the calls of a device's driver that can fail, and lets one of them fail: with memory, objects and
// command buffers as the driver leaves them when it refuses. One at a time; the device is as it was when the
// object goes.
class Faults {
 public:
  explicit Faults(gpu::Device& device);
  ~Faults();
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  // Call number `call` from now, 1 the next, fails; `for_ever`: and all after it, as on a lost device.
  void fail_at(int call, VkResult result, bool for_ever = false);
  void off();
  int calls() const;  // since the object was made, or fail_at() or off()

 private:
  gpu::VulkanApi& api_;
};

}  // namespace etr::test
