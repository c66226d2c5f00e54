// The Vulkan handles behind a Device. Only files of this room include this header.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "gpu/device.h"
#include "gpu/host_turns.h"
#include "gpu/verdicts.h"
#include "gpu/vulkan_api.h"

namespace etr::gpu {

// An instance with its (optional) validation messenger.
struct VulkanInstance {
  explicit VulkanInstance(bool validation);
  explicit VulkanInstance(const HostDevice& host);  // the program's own
  ~VulkanInstance();
  VulkanInstance(const VulkanInstance&) = delete;
  VulkanInstance& operator=(const VulkanInstance&) = delete;

  VulkanApi api;
  VkInstance handle = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger = VK_NULL_HANDLE;
  bool validating = false, owned = true;
  std::atomic<int> messages{0};

 private:
  void create(bool debug_utils);
};

// Has to be enabled where it is there.
constexpr const char* kPortabilitySubset = "VK_KHR_portability_subset";

struct PhysicalDevice {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  uint32_t queue_family = 0;
  DeviceInfo info;
  std::optional<uint32_t> upload_family;  // of queues that only copy, where there are such
  bool is_incomplete = false;             // has the extension kPortabilitySubset
};

// In the order that list_devices() documents.
std::vector<PhysicalDevice> enumerate(VulkanInstance& instance);

// That of a program that shares its device.
PhysicalDevice physical_of(VulkanInstance& instance, const HostDevice& host);

struct VulkanDevice {
  VulkanDevice(const DeviceOptions& options);
  ~VulkanDevice();

  VulkanInstance instance;
  PhysicalDevice physical;
  VulkanApi& api;  // the instance's table, completed with this device's functions
  VkDevice handle = VK_NULL_HANDLE;
  VkQueue queue = VK_NULL_HANDLE;
  VkQueue upload_queue = VK_NULL_HANDLE;  // where uploads can go apart
  std::mutex queue_mutex;
  std::optional<HostDevice> host;  // whose device and queue these are, where they are shared
  VkPhysicalDeviceMemoryProperties memory{};
  VkDeviceSize storage_alignment = 256;
  uint64_t memory_limit = 0;              // 0: none
  std::atomic<uint64_t> memory_taken{0};  // bytes

  VkPipelineCache pipeline_cache = VK_NULL_HANDLE;
  std::string pipeline_cache_file;  // "" keeps none
  std::unique_ptr<Verdicts> verdicts;
  std::mutex comparison_mutex;  // held while a kernel is compared
  std::atomic<uint32_t> kernels_replaced{0};
  std::set<std::string> compared_dispatches;  // of Compare::dispatches
  HostTurns host_turns;

  uint32_t upload_family() const { return physical.upload_family.value_or(physical.queue_family); }

  // The first memory type among `type_bits` with all flags of `wanted`; throws Error(device).
  uint32_t memory_type(uint32_t type_bits, VkMemoryPropertyFlags wanted) const;
  std::optional<uint32_t> find_memory_type(uint32_t type_bits, VkMemoryPropertyFlags wanted) const;

 private:
  void open(bool uploads_apart);
  void create_device();
  // A file of this device and its driver in the cache; "" where there is no cache.
  std::string cache_file(const std::string& directory, const char* what, const char* suffix) const;
  void load_pipeline_cache(const std::string& directory);
  void save_pipeline_cache() noexcept;
};

}  // namespace etr::gpu
