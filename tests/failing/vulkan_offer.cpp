#include "vulkan_offer.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "vulkan_calls.h"

namespace etr::failing {
namespace {

struct {
  std::mutex mutex;
  std::optional<Offer> offer;
  Enabled enabled;
} decree;

// Those of which only the offered ones exist.
const std::set<std::string> kExtensions{
    VK_EXT_DEVICE_FAULT_EXTENSION_NAME, gpu::kMatrixExtension, gpu::kBfloat16Extension,
    VK_KHR_VULKAN_MEMORY_MODEL_EXTENSION_NAME, VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME};

// Each structure and each of its features.
#define ETR_FEATURES(X)                                                                       \
  X(VkPhysicalDeviceFaultFeaturesEXT, deviceFault)                                            \
  X(VkPhysicalDeviceFaultFeaturesEXT, deviceFaultVendorBinary)                                \
  X(gpu::MatrixFeatures, cooperativeMatrix)                                                   \
  X(gpu::MatrixFeatures, cooperativeMatrixRobustBufferAccess)                                 \
  X(gpu::Bfloat16Features, shaderBFloat16Type)                                                \
  X(gpu::Bfloat16Features, shaderBFloat16DotProduct)                                          \
  X(gpu::Bfloat16Features, shaderBFloat16CooperativeMatrix)                                   \
  X(VkPhysicalDeviceVulkanMemoryModelFeatures, vulkanMemoryModel)                             \
  X(VkPhysicalDeviceVulkanMemoryModelFeatures, vulkanMemoryModelDeviceScope)                  \
  X(VkPhysicalDeviceVulkanMemoryModelFeatures, vulkanMemoryModelAvailabilityVisibilityChains) \
  X(VkPhysicalDeviceShaderFloat16Int8Features, shaderFloat16)                                 \
  X(VkPhysicalDeviceShaderFloat16Int8Features, shaderInt8)

template <typename Structure>
VkStructureType type_of();
template <>
VkStructureType type_of<VkPhysicalDeviceFaultFeaturesEXT>() {
  return VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FAULT_FEATURES_EXT;
}
template <>
VkStructureType type_of<gpu::MatrixFeatures>() {
  return gpu::MatrixFeatures{}.sType;
}
template <>
VkStructureType type_of<gpu::Bfloat16Features>() {
  return gpu::Bfloat16Features{}.sType;
}
template <>
VkStructureType type_of<VkPhysicalDeviceVulkanMemoryModelFeatures>() {
  return VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES;
}
template <>
VkStructureType type_of<VkPhysicalDeviceShaderFloat16Int8Features>() {
  return VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES;
}

// Calls `f` with the name and the value of each feature of a structure; returns whether it is one
// with features.
template <typename F>
bool each_feature(VkBaseOutStructure* structure, const F& f) {
  bool known = false;
#define X(Structure, feature)                                      \
  if (structure->sType == type_of<Structure>()) {                  \
    known = true;                                                  \
    f(#feature, reinterpret_cast<Structure*>(structure)->feature); \
  }
  ETR_FEATURES(X)
#undef X
  return known;
}

Enabled read(const VkDeviceCreateInfo& info) {
  Enabled out;
  for (uint32_t i = 0; i < info.enabledExtensionCount; ++i)
    out.extensions.insert(info.ppEnabledExtensionNames[i]);
  for (auto* at = static_cast<VkBaseOutStructure*>(const_cast<void*>(info.pNext)); at;
       at = at->pNext) {
    const bool known = each_feature(at, [&](const char* name, VkBool32 on) {
      if (on) out.features.insert(name);
    });
    if (!known) out.others.insert(std::to_string(static_cast<int>(at->sType)));
  }
  return out;
}

// Writes as many rows as there is room for.
template <typename Row>
bool give(const std::vector<Row>& rows, Row* to, uint32_t& count) {
  count = std::min(count, static_cast<uint32_t>(rows.size()));
  std::copy_n(rows.begin(), count, to);
  return count == rows.size();
}

// Answers a query of Vulkan's: without `to`, with the number of rows.
template <typename Row>
VkResult answer(const std::vector<Row>& rows, uint32_t* count, Row* to) {
  if (to) return give(rows, to, *count) ? VK_SUCCESS : VK_INCOMPLETE;
  *count = static_cast<uint32_t>(rows.size());
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL list_matrices(VkPhysicalDevice, uint32_t* count,
                                             gpu::MatrixProperties* rows) {
  const std::scoped_lock lock(decree.mutex);
  return answer(decree.offer->matrices, count, rows);
}

VKAPI_ATTR VkResult VKAPI_CALL tell_fault(VkDevice device, VkDeviceFaultCountsEXT* counts,
                                          VkDeviceFaultInfoEXT* info) {
  State& s = state();
  const std::scoped_lock lock(s.mutex, decree.mutex);
  if (!s.lost.contains(device)) breach(s, "asks for the fault of a device that is not lost");
  if (!decree.enabled.features.contains("deviceFault"))
    breach(s, "asks for a fault without the feature");
  const FaultReport& report = decree.offer->report;
  if (!info) {
    counts->addressInfoCount = static_cast<uint32_t>(report.addresses.size());
    counts->vendorInfoCount = static_cast<uint32_t>(report.vendors.size());
    counts->vendorBinarySize = report.binary_bytes;
    return report.counts;
  }
  if (counts->vendorBinarySize != 0 || info->pVendorBinaryData)
    breach(s, "asks for the vendor's dump without the feature");
  if (report.rows < 0) return report.rows;
  std::copy_n(report.description.c_str(),
              std::min(report.description.size() + 1, sizeof info->description), info->description);
  const bool whole = give(report.addresses, info->pAddressInfos, counts->addressInfoCount) &
                     give(report.vendors, info->pVendorInfos, counts->vendorInfoCount);
  return whole && report.binary_bytes == 0 ? report.rows : VK_INCOMPLETE;
}

}  // namespace

Offering::Offering(const Offer& offer) {
  const std::scoped_lock lock(decree.mutex);
  decree.offer = offer;
  decree.enabled = {};
}

Offering::~Offering() {
  const std::scoped_lock lock(decree.mutex);
  decree.offer.reset();
}

Enabled last_enabled() {
  const std::scoped_lock lock(decree.mutex);
  return decree.enabled;
}

bool offers() {
  const std::scoped_lock lock(decree.mutex);
  return decree.offer.has_value();
}

VkResult list_extensions(PFN_vkEnumerateDeviceExtensionProperties real, VkPhysicalDevice device,
                         const char* layer, uint32_t* count, VkExtensionProperties* rows) {
  uint32_t own = 0;
  if (const VkResult result = real(device, layer, &own, nullptr); result != VK_SUCCESS)
    return result;
  std::vector<VkExtensionProperties> all(own);
  if (const VkResult result = real(device, layer, &own, all.data()); result != VK_SUCCESS)
    return result;
  std::erase_if(all, [](const auto& row) { return kExtensions.contains(row.extensionName); });
  const std::scoped_lock lock(decree.mutex);
  for (const std::string& name : decree.offer->extensions) {
    VkExtensionProperties& row = all.emplace_back(VkExtensionProperties{});
    std::copy(name.begin(), name.end(), row.extensionName);
    row.specVersion = 1;
  }
  return answer(all, count, rows);
}

void tell_features(VkPhysicalDeviceFeatures2* features) {
  const std::scoped_lock lock(decree.mutex);
  for (auto* at = static_cast<VkBaseOutStructure*>(features->pNext); at; at = at->pNext)
    each_feature(at, [&](const char* name, VkBool32& value) {
      value = decree.offer->features.contains(name);
    });
}

// The driver gets neither the decreed extensions nor the structures of their features.
VkResult make_device(PFN_vkCreateDevice real, VkPhysicalDevice physical,
                     const VkDeviceCreateInfo* info, const VkAllocationCallbacks* allocator,
                     VkDevice* made) {
  {
    const std::scoped_lock lock(decree.mutex);
    decree.enabled = read(*info);
  }
  if (!offers()) return real(physical, info, allocator, made);
  VkDeviceCreateInfo own = *info;
  std::vector<const char*> names;
  for (uint32_t i = 0; i < info->enabledExtensionCount; ++i)
    if (!kExtensions.contains(info->ppEnabledExtensionNames[i]))
      names.push_back(info->ppEnabledExtensionNames[i]);
  own.enabledExtensionCount = static_cast<uint32_t>(names.size());
  own.ppEnabledExtensionNames = names.data();
  std::vector<std::pair<VkBaseOutStructure*, VkBaseOutStructure*>> cut;  // with what followed
  auto* last = reinterpret_cast<VkBaseOutStructure*>(&own);
  for (auto* at = last->pNext; at; at = at->pNext) {
    if (each_feature(at, [](const char*, VkBool32) {})) continue;
    cut.emplace_back(last, last->pNext);
    last->pNext = at;
    last = at;
  }
  cut.emplace_back(last, last->pNext);
  last->pNext = nullptr;
  const VkResult result = real(physical, &own, allocator, made);
  for (auto at = cut.rbegin(); at != cut.rend(); ++at) at->first->pNext = at->second;
  return result;
}

PFN_vkVoidFunction offered_function(std::string_view name) {
  const std::scoped_lock lock(decree.mutex);
  if (!decree.offer) return nullptr;
  if (name == "vkGetDeviceFaultInfoEXT" &&
      decree.enabled.extensions.contains(VK_EXT_DEVICE_FAULT_EXTENSION_NAME))
    return reinterpret_cast<PFN_vkVoidFunction>(tell_fault);
  if (name == "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR")
    return reinterpret_cast<PFN_vkVoidFunction>(list_matrices);
  return nullptr;
}

}  // namespace etr::failing
