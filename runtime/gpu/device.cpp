#include "gpu/device.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <span>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "gpu/device_fault.h"
#include "gpu/vulkan_device.h"
#include "gpu/vulkan_matrix.h"

namespace etr::gpu {
namespace {

std::string describe_all(const std::vector<PhysicalDevice>& devices) {
  if (devices.empty()) return "there is no Vulkan device; install mesa-vulkan-drivers for lavapipe";
  std::string out = "there are:";
  for (const auto& device : devices)
    out += cat("\n  ", device.info.index, ": ", device.info.name, " (",
               device_kind_name(device.info.kind), ")");
  return out;
}

PhysicalDevice select(const std::vector<PhysicalDevice>& devices, const std::string& selector) {
  for (const PhysicalDevice& device : devices)
    if (matches(device.info, selector)) return device;
  fail(Code::no_device, "no Vulkan device matches '", selector, "'; ", describe_all(devices));
}

// The CPU kernels need subgroups of 8 or 16 lanes, broadcasts, plain pointers (see
// shaders/gemm_cpu.comp), and sums and maxima of subgroups (shaders/row.glsl).
bool can_run_cpu_family(const DeviceInfo& info) {
  return info.subgroup_broadcast && info.subgroup_arithmetic && info.buffer_addresses &&
         (info.subgroup_size == 8 || info.subgroup_size == 16);
}

KernelFamily choose_family(const DeviceInfo& info, KernelFamily asked) {
  if (asked == KernelFamily::cpu && !can_run_cpu_family(info))
    fail(Code::unsupported, "device '", info.name,
         "' cannot run the cpu kernels: they need buffer device addresses, subgroup broadcast and "
         "arithmetic, and 8 or 16 lanes; use the tiled family");
  if (asked == KernelFamily::matrix && info.matrix_units.empty())
    fail(Code::unsupported, "device '", info.name,
         "' has no matrix units for 16-bit floats (VK_KHR_cooperative_matrix); use the tiled "
         "family");
  const bool cpu = asked == KernelFamily::automatic
                       ? info.kind == DeviceKind::cpu && can_run_cpu_family(info)
                       : asked == KernelFamily::cpu;
  constexpr uint32_t kWorkgroup = 256;  // of the kernels for GPUs
  if (!cpu && info.max_workgroup < kWorkgroup)
    fail(Code::unsupported, "device '", info.name, "' runs at most ", info.max_workgroup,
         " invocations in a workgroup; the kernels for GPUs need ", kWorkgroup);
  constexpr uint32_t kStorageBuffers = 9;  // of the kernels for GPUs that take the most
  if (!cpu && info.max_storage_buffers < kStorageBuffers)
    fail(Code::unsupported, "device '", info.name, "' binds at most ", info.max_storage_buffers,
         " storage buffers to a kernel (maxPerStageDescriptorStorageBuffers); the kernels for GPUs "
         "need ",
         kStorageBuffers, "; choose another device");
  if (asked != KernelFamily::automatic) return asked;
  if (cpu) return KernelFamily::cpu;
  return info.matrix_units.empty() ? KernelFamily::tiled : KernelFamily::matrix;
}

void apply_lowered(const LoweredLimits& lowered, DeviceInfo& info) {
  if (lowered.max_buffer_bytes)
    info.max_buffer_bytes = std::min(info.max_buffer_bytes, lowered.max_buffer_bytes);
  if (lowered.max_storage_bytes)
    info.max_storage_bytes = std::min(info.max_storage_bytes, lowered.max_storage_bytes);
  if (lowered.max_storage_buffers)
    info.max_storage_buffers = std::min(info.max_storage_buffers, lowered.max_storage_buffers);
  if (lowered.max_iterations) info.max_iterations = lowered.max_iterations;
  if (lowered.max_groups)
    for (uint32_t& most : info.max_groups) most = std::min(most, lowered.max_groups);
  if (lowered.max_workgroup)
    info.max_workgroup = std::min(info.max_workgroup, lowered.max_workgroup);
  if (lowered.max_shared_bytes)
    info.max_shared_bytes = std::min(info.max_shared_bytes, lowered.max_shared_bytes);
  info.subgroup_broadcast = info.subgroup_broadcast && lowered.subgroups;
  info.subgroup_arithmetic =
      info.subgroup_arithmetic && lowered.subgroups && lowered.subgroup_arithmetic;
  info.buffer_addresses = info.buffer_addresses && lowered.buffer_addresses;
  if (!lowered.matrix_units) info.matrix_units.clear();
}

double hang_seconds_of(const DeviceOptions& options, const DeviceInfo& info) {
  constexpr double kUsual = 300;  // drivers and systems report it within ten, if they do
  if (options.host) return 0;
  if (options.hang_seconds > 0) return options.hang_seconds;
  return info.kind == DeviceKind::cpu ? 0 : kUsual;
}

}  // namespace

bool matches(const DeviceInfo& device, const std::string& selector) {
  if (selector.empty()) return device.index == 0;
  int index = -1;
  const auto [end, error] =
      std::from_chars(selector.data(), selector.data() + selector.size(), index);
  // No machine has a hundred devices, and longer numbers are parts of names ("4090").
  const bool is_index =
      error == std::errc() && end == selector.data() + selector.size() && index < 100;
  return is_index ? device.index == index
                  : lower_case(device.name).find(lower_case(selector)) != std::string::npos;
}

std::string cache_name_of(const DeviceInfo& info, std::span<const uint8_t> build) {
  // File names may have 255 bytes, and some drivers have long names.
  constexpr size_t kLongest = 160;
  std::string name = (info.name + "-" + info.driver).substr(0, kLongest);
  for (char& c : name)
    if (!is_letter_or_digit(c)) c = '_';
  name += '-';
  for (const uint8_t byte : build) {
    constexpr const char* kDigits = "0123456789abcdef";
    name += {kDigits[byte / 16], kDigits[byte % 16]};
  }
  return name;
}

VulkanDevice::VulkanDevice(const DeviceOptions& options)
    : instance(options.host ? VulkanInstance(*options.host) : VulkanInstance(options.validation)),
      physical(options.host ? physical_of(instance, *options.host)
                            : select(enumerate(instance), options.selector)),
      api(instance.api),
      host(options.host),
      memory_limit(options.memory_limit_bytes),
      hang_seconds(hang_seconds_of(options, physical.info)) {
  apply_lowered(options.lowered, physical.info);
  open(options.lowered.uploads_apart);
  api.GetPhysicalDeviceMemoryProperties(physical.handle, &memory);
  VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  api.GetPhysicalDeviceProperties2(physical.handle, &properties);
  storage_alignment =
      std::max<VkDeviceSize>(64, properties.properties.limits.minStorageBufferOffsetAlignment);
  cache_name = cache_name_of(physical.info, properties.properties.pipelineCacheUUID);
  try {
    load_pipeline_cache(options.cache_directory);
    verdicts = std::make_unique<Verdicts>(cache_file(options.cache_directory, "kernels", ".json"));
  } catch (...) {
    close();
    throw;
  }
}

void VulkanDevice::check(VkResult result, const char* call) const {
  const bool ask = result == VK_ERROR_DEVICE_LOST && physical.reports_faults;
  gpu::check(result, call, ask ? device_fault(api, handle) : std::string());
}

bool VulkanDevice::wait(VkFence fence, double seconds, double& waited) {
  // While the process is stopped, time passes that the device does not have. So it counts in
  // slices.
  const double longest = hang_seconds > 0 ? std::min(1.0, hang_seconds / 10) : 1.0;
  while (true) {
    if (abandoned) fail(Code::device_lost, "device '", physical.info.name, "' hangs");
    const double slice = std::clamp(seconds, 0.0, longest);
    const VkResult result =
        api.WaitForFences(handle, 1, &fence, VK_TRUE, static_cast<uint64_t>(slice * 1e9));
    if (result != VK_TIMEOUT) {
      check(result, "vkWaitForFences");
      return true;
    }
    waited += slice;
    seconds -= slice;
    if (hang_seconds > 0 && waited >= hang_seconds) {
      abandoned = true;
      fail(Code::device_lost, "device '", physical.info.name, "' has not finished its work for ",
           waited, " s and counts as lost; open it again and load a checkpoint");
    }
    if (seconds <= 0) return false;
  }
}

void VulkanDevice::wait(VkFence fence) {
  double waited = 0;
  wait(fence, std::numeric_limits<double>::infinity(), waited);
}

// A call that had no memory may have some the next time.
void VulkanDevice::settle(VkFence fence) noexcept {
  constexpr int kAttempts = 10;
  for (int attempt = 0; attempt < kAttempts && !abandoned; ++attempt) try {
      return wait(fence);
    } catch (const Error& error) {
      if (error.code() == Code::device_lost) return;
    } catch (...) {
    }
  abandoned = true;
}

void VulkanDevice::open(bool uploads_apart) {
  if (host) {
    handle = static_cast<VkDevice>(host->device);
    queue = static_cast<VkQueue>(host->queue);
    api.load_device(handle);
    return;
  }
  create_device();
  api.load_device(handle);
  api.GetDeviceQueue(handle, physical.queue_family, 0, &queue);
  if (physical.upload_family)
    api.GetDeviceQueue(handle, upload_family(), 0, &upload_queue);
  else if (uploads_apart)
    upload_queue = queue;
}

void VulkanDevice::create_device() {
  const float priority = 1.0f;
  std::vector<VkDeviceQueueCreateInfo> queues;
  const auto add_queue = [&](uint32_t family) {
    VkDeviceQueueCreateInfo queue_info{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
    queue_info.queueFamilyIndex = family;
    queue_info.queueCount = 1;
    queue_info.pQueuePriorities = &priority;
    queues.push_back(queue_info);
  };
  add_queue(physical.queue_family);
  if (physical.upload_family) add_queue(*physical.upload_family);

  VkPhysicalDeviceBufferDeviceAddressFeatures addresses{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES};
  addresses.bufferDeviceAddress = VK_TRUE;
  VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
  std::vector<const char*> extensions;
  const auto add = [&](auto& feature, const char* extension) {
    feature.pNext = features.pNext;
    features.pNext = &feature;
    extensions.push_back(extension);
  };
  if (physical.info.buffer_addresses) {
    features.features.shaderInt64 = VK_TRUE;
    add(addresses, VK_KHR_BUFFER_DEVICE_ADDRESS_EXTENSION_NAME);
  }
  MatrixFeatures matrices;
  Bfloat16Features bfloat16;
  VkPhysicalDeviceVulkanMemoryModelFeatures memory_model{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES};
  VkPhysicalDeviceShaderFloat16Int8Features float16{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES};
  if (!physical.info.matrix_units.empty()) {
    matrices.cooperativeMatrix = VK_TRUE;
    memory_model.vulkanMemoryModel = VK_TRUE;
    add(matrices, kMatrixExtension);
    add(memory_model, VK_KHR_VULKAN_MEMORY_MODEL_EXTENSION_NAME);
    const auto& units = physical.info.matrix_units;
    const auto has = [&](bool bf16) {
      return std::any_of(units.begin(), units.end(),
                         [&](const MatrixUnit& unit) { return unit.bfloat16 == bf16; });
    };
    float16.shaderFloat16 = VK_TRUE;
    if (has(false)) add(float16, VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME);
    bfloat16.shaderBFloat16Type = bfloat16.shaderBFloat16CooperativeMatrix = VK_TRUE;
    if (has(true)) add(bfloat16, kBfloat16Extension);
  }
  VkPhysicalDeviceSubgroupSizeControlFeatures subgroups{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
  subgroups.subgroupSizeControl = subgroups.computeFullSubgroups = VK_TRUE;
  if (physical.sets_subgroup_size) add(subgroups, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  VkPhysicalDeviceFaultFeaturesEXT faults{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FAULT_FEATURES_EXT};
  faults.deviceFault = VK_TRUE;
  if (physical.reports_faults) add(faults, VK_EXT_DEVICE_FAULT_EXTENSION_NAME);
  if (physical.info.imports_memory)
    extensions.push_back(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
  if (physical.is_incomplete) extensions.push_back(kPortabilitySubset);
  VkDeviceCreateInfo info{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
  info.pNext = &features;
  info.queueCreateInfoCount = static_cast<uint32_t>(queues.size());
  info.pQueueCreateInfos = queues.data();
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  gpu::check(api.CreateDevice(physical.handle, &info, nullptr, &handle), "vkCreateDevice");
}

std::string VulkanDevice::cache_file(const std::string& directory, const char* what,
                                     const char* suffix) const {
  if (directory.empty()) return "";
  return directory + "/" + what + "-" + cache_name + suffix;
}

namespace {

std::string read_cache(const std::string& file) {
  try {
    return platform::read_file(file);
  } catch (const Error& error) {
    log_line(LogLevel::warning, cat("the pipeline cache was not read: ", error.what()));
    return "";
  }
}

}  // namespace

void VulkanDevice::load_pipeline_cache(const std::string& directory) {
  std::string data;
  std::error_code ignored;  // without a cache the run is only slower
  if (!directory.empty()) std::filesystem::create_directories(directory, ignored);
  pipeline_cache_file = cache_file(directory, "pipelines", ".bin");
  if (!directory.empty() && std::filesystem::exists(pipeline_cache_file, ignored))
    data = read_cache(pipeline_cache_file);
  // The driver checks the header's vendor, device and version itself and ignores stale data.
  VkPipelineCacheCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  info.initialDataSize = data.size();
  info.pInitialData = data.data();
  check(api.CreatePipelineCache(handle, &info, nullptr, &pipeline_cache), "vkCreatePipelineCache");
}

void VulkanDevice::save_pipeline_cache() noexcept {
  if (pipeline_cache_file.empty()) return;
  try {
    size_t size = 0;
    check(api.GetPipelineCacheData(handle, pipeline_cache, &size, nullptr), "pipeline cache size");
    std::vector<std::byte> data(size);
    check(api.GetPipelineCacheData(handle, pipeline_cache, &size, data.data()), "pipeline cache");
    platform::write_file_atomic(pipeline_cache_file, {data.data(), size});
  } catch (const std::exception& error) {
    try_log_line(LogLevel::warning, {"the pipeline cache was not saved: ", error.what()});
  } catch (...) {
    try_log_line(LogLevel::warning, {"the pipeline cache was not saved"});
  }
}

VulkanDevice::~VulkanDevice() {
  if (!abandoned) {
    if (!host)
      api.DeviceWaitIdle(handle);  // a shared queue may be busy with the program's own work
    save_pipeline_cache();
  }
  verdicts->save();
  close();
}

void VulkanDevice::close() noexcept {
  if (abandoned) {  // the driver must stay, too
    instance.owned = false;
    api.keep_loader();
    return;
  }
  if (pipeline_cache) api.DestroyPipelineCache(handle, pipeline_cache, nullptr);
  if (!host) api.DestroyDevice(handle, nullptr);
}

uint32_t VulkanDevice::memory_type(uint32_t type_bits, VkMemoryPropertyFlags wanted) const {
  if (const auto found = find_memory_type(type_bits, wanted)) return *found;
  fail(Code::device, "device '", physical.info.name, "' has no memory type with flags ", wanted);
}

std::optional<uint32_t> VulkanDevice::find_memory_type(uint32_t type_bits,
                                                       VkMemoryPropertyFlags wanted) const {
  for (uint32_t i = 0; i < memory.memoryTypeCount; ++i)
    if ((type_bits >> i & 1) && (memory.memoryTypes[i].propertyFlags & wanted) == wanted) return i;
  return std::nullopt;
}

Device::Device(const DeviceOptions& options)
    : options_(options), vk_(std::make_unique<VulkanDevice>(options)) {
  info_ = vk_->physical.info;
  family_ = choose_family(info_, options.family);
}

Device::~Device() = default;

uint64_t Device::allocated_bytes() const { return vk_->memory_taken.load(); }

uint64_t Device::max_tensor_bytes() const {
  // SPIR-V takes the 32-bit numbers of elements for signed ones.
  constexpr uint64_t kMostElements = uint64_t{1} << 31;
  const uint64_t bound = family_ == KernelFamily::cpu ? 4 * kMostElements : info_.max_storage_bytes;
  return std::min(bound, info_.max_buffer_bytes);
}

int Device::validation_messages() const { return vk_->instance.messages.load(); }
bool Device::validating() const { return vk_->instance.validating; }

}  // namespace etr::gpu
