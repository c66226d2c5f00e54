// A Vulkan device with a compute queue and, where it has one, a separate queue for uploads.
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

// One matrix product that a subgroup can do on the device's matrix units: [m, k] by [k, n] with
// 16-bit elements and 32-bit sums.
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

  // Limits and capabilities that decide which kernels are used.
  uint64_t max_buffer_bytes = 0;         // of one buffer; ~0: the device does not say
  uint64_t max_storage_bytes = 0;        // of one bound buffer range
  uint32_t max_storage_buffers = 0;      // bound to a kernel
  std::array<uint32_t, 3> max_groups{};  // workgroups of a dispatch, along each axis
  uint32_t max_shared_bytes = 0;
  uint32_t max_workgroup = 0;  // invocations
  // Loop iterations of an invocation, all loops together, after which the driver ends its loops
  // without an error; 0: no such limit.
  uint32_t max_iterations = 0;
  uint32_t subgroup_size = 0;
  bool subgroup_broadcast = false, subgroup_arithmetic = false;
  bool buffer_addresses = false;
  bool imports_memory = false;           // can import host memory
  std::vector<MatrixUnit> matrix_units;  // VK_KHR_cooperative_matrix; empty: none
  double timestamp_period_ns = 0;        // 0: the queue has no timestamps
  uint32_t timestamp_bits = 64;          // valid bits; the counter wraps to 0 after them
};

// Which kernels to use. `automatic` takes `cpu` on CPU devices that can run it, `matrix` where
// there are matrix units, and `tiled` elsewhere. `matrix` equals `tiled` except for products that
// matrix units can do.
enum class KernelFamily { automatic, cpu, tiled, matrix };

// Limits below the device's own, to test on one device how another would behave. 0 and true keep
// the device's own.
struct LoweredLimits {
  uint64_t max_buffer_bytes = 0;
  uint64_t max_storage_bytes = 0;
  uint32_t max_storage_buffers = 0;
  uint32_t max_groups = 0;  // along each axis
  uint32_t max_iterations = 0;
  uint32_t max_shared_bytes = 0;
  uint32_t max_workgroup = 0;
  bool subgroups = true, subgroup_arithmetic = true, buffer_addresses = true, matrix_units = true;
  bool watchdog = false;         // split submissions also on a CPU device
  bool uploads_apart = false;    // upload with gpu::Upload whatever the size, even with one queue
  std::string wrong_kernels;     // kernels whose names begin with this fail their check
  std::string hopeless_kernels;  // these fail it even without the driver's optimizer
};

// A Vulkan device that the host program has created and shares. It must outlive everything made
// with it. The pointers are Vulkan handles.
struct HostDevice {
  // PFN_vkGetInstanceProcAddr; nullptr: the system loader's.
  void* get_instance_proc_addr = nullptr;
  void *instance = nullptr, *physical_device = nullptr, *device = nullptr, *queue = nullptr;
  uint32_t queue_family = 0;      // must support compute
  bool buffer_addresses = false;  // created with bufferDeviceAddress and shaderInt64
  // Created with cooperativeMatrix, vulkanMemoryModel and whichever of shaderFloat16 and
  // shaderBFloat16CooperativeMatrix the device has.
  bool matrix_units = false;
  // Called around each submission; needed if the program also submits to the queue.
  std::function<void()> lock, unlock;
};

// Which results are compared with the host's (gpu/comparison.h): none; each kernel once per
// driver; or, for tests, each kernel at each problem size, where a fault of the kernel itself is an
// error.
enum class Compare { nothing, kernels, dispatches };

struct DeviceOptions {
  // "" opens the first device. A number below 100 opens the device with that index. Any other text
  // opens the first device whose name contains it, ignoring case.
  std::string selector;
  bool validation = false;  // load the Khronos validation layer with synchronization validation
  KernelFamily family = KernelFamily::automatic;
  // Holds compiled pipelines and the results of comparisons; "" keeps none on disk.
  std::string cache_directory;
  Compare compare = Compare::nothing;
  // A device that does not finish a submission within so many seconds of waiting is taken for lost.
  // 0: five minutes on GPUs, never on CPU devices. Never on a host program's device, which may be
  // busy with that program's work.
  float hang_seconds = 0;
  uint64_t memory_limit_bytes = 0;  // limit on all memory allocated from the device; 0: none
  // A submission that would take longer is split into several, because operating systems reset a
  // GPU that one submission keeps busy for too long. CPU devices have no such watchdog and never
  // split. 0: never split.
  double longest_submit_seconds = 0.25;
  LoweredLimits lowered;
  std::optional<HostDevice> host;  // if set, used instead of `selector`
};

// Returns all devices with a compute queue and Vulkan 1.1: discrete GPUs first, CPU devices last.
// Throws Error(no_device) if the loader is missing.
std::vector<DeviceInfo> list_devices();

// Returns whether `selector` (see DeviceOptions) names this device.
bool matches(const DeviceInfo& device, const std::string& selector);

struct VulkanDevice;  // the Vulkan handles, internal to gpu/ (gpu/vulkan_device.h)

class Device {
 public:
  // Throws Error(no_device), which lists the available devices, if none matches.
  explicit Device(const DeviceOptions& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  KernelFamily family() const { return family_; }  // not `automatic`
  VulkanDevice& vk() const { return *vk_; }

  const DeviceOptions& options() const { return options_; }
  uint64_t allocated_bytes() const;  // currently allocated from the device

  // The largest tensor that kernels can take. The limit on bound ranges does not apply to the CPU
  // family, which addresses memory by pointer.
  uint64_t max_tensor_bytes() const;

  // Number of messages from the validation layer so far (0 if it is not loaded). `validating`
  // returns whether it is.
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
