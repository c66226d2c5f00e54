// What a driver says of a device that it has lost (VK_EXT_device_fault). Internal to gpu/.
#pragma once

#include <string>

#include "gpu/vulkan_api.h"

namespace etr::gpu {

// Returns the driver's description, the addresses and the vendor's codes of the fault, to be
// appended to an error's message; "" if it says nothing, or there is no memory for it. `device` has
// to be lost, and the feature deviceFault enabled.
std::string device_fault(const VulkanApi& api, VkDevice device) noexcept;

}  // namespace etr::gpu
