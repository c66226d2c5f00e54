// Injects failures of the Vulkan driver.
#pragma once

#include "gpu/device.h"
#include "gpu/vulkan_device.h"

namespace etr::test {

// Counts those calls of a device's driver that can fail, and makes one of them fail. Memory,
// objects and command buffers are left as by a driver that refuses. Only one object at a time; its
// destructor restores the device.
class Faults {
 public:
  explicit Faults(gpu::Device& device);
  ~Faults();
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  // Makes call number `call` from now fail (1 is the next); with `for_ever` also all later calls,
  // as on a lost device.
  void fail_at(int call, VkResult result, bool for_ever = false);
  void off();
  int calls() const;  // since construction, or the latest fail_at() or off()

 private:
  gpu::VulkanApi& api_;
};

}  // namespace etr::test
