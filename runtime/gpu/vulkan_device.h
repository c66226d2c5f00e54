// The Vulkan handles of a Device. Internal to gpu/.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "gpu/device.h"
#include "gpu/host_turns.h"
#include "gpu/verdicts.h"
#include "gpu/vulkan_api.h"

namespace etr::gpu {

// An instance with its (optional) validation messenger.
struct VulkanInstance {
  explicit VulkanInstance(bool validation);
  explicit VulkanInstance(const HostDevice& host);  // the host program's instance
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

// Must be enabled on devices that have it.
constexpr const char* kPortabilitySubset = "VK_KHR_portability_subset";

struct PhysicalDevice {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  uint32_t queue_family = 0;
  DeviceInfo info;
  std::optional<uint32_t> upload_family;  // family of queues that only copy, if there is one
  bool is_incomplete = false;             // has kPortabilitySubset
  bool sets_subgroup_size = false;        // kernels can ask for full subgroups of info's size
  bool reports_faults = false;            // says why it was lost, once that has happened
};

// Returns the devices in the order of list_devices().
std::vector<PhysicalDevice> enumerate(VulkanInstance& instance);

// Returns the physical device of a program that shares its device.
PhysicalDevice physical_of(VulkanInstance& instance, const HostDevice& host);

// Returns what files in the cache are called after: the device, its driver and the driver's build,
// pipelineCacheUUID, because a driver need not say its version.
std::string cache_name_of(const DeviceInfo& info, std::span<const uint8_t> build);

struct VulkanDevice {
  VulkanDevice(const DeviceOptions& options);
  ~VulkanDevice();

  VulkanInstance instance;
  PhysicalDevice physical;
  VulkanApi& api;  // the instance's table, with this device's functions added
  VkDevice handle = VK_NULL_HANDLE;
  VkQueue queue = VK_NULL_HANDLE;
  VkQueue upload_queue = VK_NULL_HANDLE;  // null unless uploads can run separately
  std::mutex queue_mutex;
  std::optional<HostDevice> host;  // owner of the device and the queue, if they are shared
  VkPhysicalDeviceMemoryProperties memory{};
  VkDeviceSize storage_alignment = 256;
  uint64_t memory_limit = 0;              // 0: none
  std::atomic<uint64_t> memory_taken{0};  // bytes

  std::string cache_name;  // see cache_name_of()
  VkPipelineCache pipeline_cache = VK_NULL_HANDLE;
  std::string pipeline_cache_file;  // "" keeps none
  std::unique_ptr<Verdicts> verdicts;
  std::mutex comparison_mutex;  // held while a kernel is compared
  std::atomic<uint32_t> kernels_replaced{0};
  std::set<std::string> compared_dispatches;  // for Compare::dispatches
  HostTurns host_turns;

  double hang_seconds = 0;  // 0: for ever
  // The device may still use what was made on it, and will not say when that is over. None of it is
  // destroyed any more: memory is lost, but the process goes on.
  std::atomic<bool> abandoned{false};

  // Throws the Error that the result of a call of this device stands for; that of a lost device has
  // what the driver reports.
  void check(VkResult result, const char* call) const;
  // Waits for at most `seconds` and returns whether `fence` is signalled. `waited`: the time for
  // which its submission has been waited for. Error(device_lost) if the device is lost, or
  // abandoned because this has become longer than `hang_seconds`.
  bool wait(VkFence fence, double seconds, double& waited);
  void wait(VkFence fence);
  // Returns when the device no longer uses what a submission needs, or has been abandoned.
  void settle(VkFence fence) noexcept;

  uint32_t upload_family() const { return physical.upload_family.value_or(physical.queue_family); }

  // Returns the first memory type among `type_bits` that has all flags of `wanted`; throws
  // Error(device) if there is none.
  uint32_t memory_type(uint32_t type_bits, VkMemoryPropertyFlags wanted) const;
  std::optional<uint32_t> find_memory_type(uint32_t type_bits, VkMemoryPropertyFlags wanted) const;

 private:
  void open(bool uploads_apart);
  void create_device();
  // Returns the path of a cache file for this device and driver; "" if there is no cache.
  std::string cache_file(const std::string& directory, const char* what, const char* suffix) const;
  void load_pipeline_cache(const std::string& directory);
  void save_pipeline_cache() noexcept;
  void close() noexcept;
};

}  // namespace etr::gpu
