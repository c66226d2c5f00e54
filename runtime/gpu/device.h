// A Vulkan device with a compute queue, and one for uploads where it has such.
//
// Handles of other Vulkan objects (buffers, kernels, recordings) keep their Device alive through a
// shared_ptr, so they may be destroyed in any order. Submission is internally locked; everything
// else of a Device is immutable after opening.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace etr::gpu {

enum class DeviceKind { discrete, integrated, virtual_gpu, cpu, other };

const char* device_kind_name(DeviceKind kind);

// What the device's matrix units multiply for a subgroup: [m, k] by [k, n], elements of 16 bits with sums of 32.
struct MatrixUnit {
  bool bfloat16;  // otherwise float16
  uint32_t m, n, k;
};

struct DeviceInfo {
  int index = 0;  // in the order of list_devices()
  std::string name;
  std::string driver;
  DeviceKind kind = DeviceKind::other;
  uint32_t api_major = 0, api_minor = 0;
  uint64_t memory_bytes = 0;  // the largest device-local heap

  // Limits and capabilities that the kernels choose by.
  uint64_t max_storage_bytes = 0;        // of one bound buffer range
  uint32_t max_storage_buffers = 0;      // bound to a kernel
  std::array<uint32_t, 3> max_groups{};  // workgroups of a dispatch, along each axis
  uint32_t max_shared_bytes = 0;
  uint32_t max_workgroup = 0;  // invocations
  uint32_t subgroup_size = 0;
  bool subgroup_broadcast = false;
  bool buffer_addresses = false;
  bool imports_memory = false;           // takes memory of the host's as its own
  std::vector<MatrixUnit> matrix_units;  // VK_KHR_cooperative_matrix; empty: none
  double timestamp_period_ns = 0;        // 0: the queue has no timestamps
  uint32_t timestamp_bits = 64;          // after which they begin again at 0
};

// Which kernels to use: `automatic` takes `cpu` on CPU devices that can run it, `matrix` where there are matrix units,
// `tiled` elsewhere. `matrix` is `tiled` but for products that matrix units can do.
enum class KernelFamily { automatic, cpu, tiled, matrix };

// Limits below those of the device itself, to see on one device how another would fare; 0 and true: its own.
struct LoweredLimits {
  uint64_t max_storage_bytes = 0;
  uint32_t max_storage_buffers = 0;
  uint32_t max_shared_bytes = 0;
  bool subgroups = true, buffer_addresses = true, matrix_units = true;
  bool uploads_apart = false;    // all that can, also where there is but one queue
  std::string wrong_kernels;     // kernels whose names begin so fail their check
  std::string hopeless_kernels;  // and also when they are compiled without the driver's optimizer
};

// A Vulkan device that the program made itself and shares. It outlives everything made with it. Handles are Vulkan's.
struct HostDevice {
  void* get_instance_proc_addr =
      nullptr;  // PFN_vkGetInstanceProcAddr; nullptr: that of the system's loader
  void *instance = nullptr, *physical_device = nullptr, *device = nullptr, *queue = nullptr;
  uint32_t queue_family = 0;      // with compute
  bool buffer_addresses = false;  // made with the features bufferDeviceAddress and shaderInt64
  // Made with cooperativeMatrix, vulkanMemoryModel, and shaderFloat16 or shaderBFloat16CooperativeMatrix, as there are.
  bool matrix_units = false;
  // Called around each submission to the queue, where the program submits to it too.
  std::function<void()> lock, unlock;
};

// What of the device's work is compared with the host's (gpu/comparison.h): nothing; each kernel once per driver; or, for
// tests, each kernel for each size of its problem, and a fault of its own is an error.
enum class Compare { nothing, kernels, dispatches };

struct DeviceOptions {
  // "" opens the first device; a number opens that index; other text the first device whose name
  // contains it (case ignored).
  std::string selector;
  bool validation = false;  // load the Khronos validation layer with synchronization validation
  KernelFamily family = KernelFamily::automatic;
  std::string
      cache_directory;  // of compiled pipelines and of what was compared; "" keeps none on disk
  Compare compare = Compare::nothing;
  uint64_t memory_limit_bytes = 0;  // of all memory taken from the device; 0: what there is
  // A submission that takes longer is cut into several: systems reset a GPU that is busy with one for too
  // long. CPU devices have no such watchdog. 0: never cut.
  double longest_submit_seconds = 0.25;
  LoweredLimits lowered;
  std::optional<HostDevice> host;  // this one, instead of one by `selector`
};

// All devices with a compute queue and Vulkan 1.1: discrete GPUs first, CPU devices last.
// Throws Error(no_device) where the loader is missing.
std::vector<DeviceInfo> list_devices();

// Whether it is one that DeviceOptions::selector names.
bool matches(const DeviceInfo& device, const std::string& selector);

struct VulkanDevice;  // the Vulkan handles, for files of this room (gpu/vulkan_device.h)

class Device {
 public:
  // Throws Error(no_device) that lists what there is when nothing matches.
  explicit Device(const DeviceOptions& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  KernelFamily family() const { return family_; }  // not `automatic`
  VulkanDevice& vk() const { return *vk_; }

  const DeviceOptions& options() const { return options_; }
  uint64_t allocated_bytes() const;  // memory taken from the device now

  // The largest tensor that kernels can take: those that work by address are not bound to ranges.
  uint64_t max_tensor_bytes() const;

  // Messages of the validation layer so far (0 where it is not loaded); `validating` tells whether
  // the layer was found.
  int validation_messages() const;
  bool validating() const;

 private:
  DeviceOptions options_;
  DeviceInfo info_;
  KernelFamily family_;
  std::unique_ptr<VulkanDevice> vk_;
};

using DevicePtr = std::shared_ptr<Device>;

}  // namespace etr::gpu
