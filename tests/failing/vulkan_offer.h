// Extensions and features that the driver has, or has not, by decree: the loader tells of those
// that are named here and of no other of their kind, and makes devices without them. So it shows
// what is enabled on a driver of which there is none here.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "gpu/vulkan_matrix.h"

namespace etr::failing {

// What vkGetDeviceFaultInfoEXT answers for a lost device.
struct FaultReport {
  VkResult counts = VK_SUCCESS;  // of the call that asks for the numbers of rows
  VkResult rows = VK_SUCCESS;    // of the one that asks for the rows
  std::string description;       // its first 256 bytes, with a NUL only if it is shorter
  std::vector<VkDeviceFaultAddressInfoEXT> addresses;
  std::vector<VkDeviceFaultVendorInfoEXT> vendors;
  uint64_t binary_bytes = 0;  // of the vendor's dump
};

struct Offer {
  std::set<std::string> extensions;
  // Features, by their names in the structures of the specification, such as "deviceFault".
  std::set<std::string> features;
  std::vector<gpu::MatrixProperties> matrices;
  FaultReport report;
};

// Holds for its lifetime; one at a time.
class Offering {
 public:
  explicit Offering(const Offer& offer);
  ~Offering();
  Offering(const Offering&) = delete;
  Offering& operator=(const Offering&) = delete;
};

// What the latest device was to be made with.
struct Enabled {
  std::set<std::string> extensions, features;
  // Other structures in the chain, by their numbers, such as "1000225002".
  std::set<std::string> others;
};
Enabled last_enabled();

// ---- for the loader -----------------------------------------------------------------------------

bool offers();
VkResult list_extensions(PFN_vkEnumerateDeviceExtensionProperties real, VkPhysicalDevice device,
                         const char* layer, uint32_t* count, VkExtensionProperties* rows);
void tell_features(VkPhysicalDeviceFeatures2* features);
VkResult make_device(PFN_vkCreateDevice real, VkPhysicalDevice physical,
                     const VkDeviceCreateInfo* info, const VkAllocationCallbacks* allocator,
                     VkDevice* made);
// The device's function, and the instance's, that an offered extension brings; null: the driver's.
PFN_vkVoidFunction offered_function(std::string_view name);

}  // namespace etr::failing
