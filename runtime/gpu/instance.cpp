// Instances and the enumeration of physical devices.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/error.h"
#include "core/log.h"
#include "gpu/vulkan_device.h"
#include "gpu/vulkan_matrix.h"
#include "gpu/wide_vectors.h"

namespace etr::gpu {
namespace {

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                          VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT* data,
                                          void* user_data) {
  static_cast<VulkanInstance*>(user_data)->messages.fetch_add(1);
  log_line(LogLevel::error, cat("validation: ", data->pMessage));
  return VK_FALSE;
}

VkDebugUtilsMessengerCreateInfoEXT messenger_info(VulkanInstance* instance) {
  VkDebugUtilsMessengerCreateInfoEXT info{VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
  info.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                         VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
  info.pfnUserCallback = on_message;
  info.pUserData = instance;
  return info;
}

// Returns the list that `call` gives for a pointer to a count and one to the rows. A list that was
// not given is an error: without it, a device would seem to lack what it has.
template <typename T, typename Call>
std::vector<T> list_of(const char* name, const Call& call) {
  uint32_t count = 0;
  check(call(&count, nullptr), name);
  std::vector<T> out(count);
  if (const VkResult result = call(&count, out.data()); result != VK_INCOMPLETE)
    check(result, name);
  out.resize(count);
  return out;
}

bool has_layer(const VulkanApi& api, const char* name) {
  const auto layers = list_of<VkLayerProperties>("vkEnumerateInstanceLayerProperties",
                                                 api.EnumerateInstanceLayerProperties);
  return std::any_of(layers.begin(), layers.end(), [&](const VkLayerProperties& layer) {
    return std::strcmp(layer.layerName, name) == 0;
  });
}

bool has_instance_extension(const VulkanApi& api, std::string_view name) {
  const auto extensions = list_of<VkExtensionProperties>(
      "vkEnumerateInstanceExtensionProperties", [&](uint32_t* count, VkExtensionProperties* rows) {
        return api.EnumerateInstanceExtensionProperties(nullptr, count, rows);
      });
  return std::any_of(extensions.begin(), extensions.end(),
                     [&](const VkExtensionProperties& e) { return name == e.extensionName; });
}

DeviceKind kind_of(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return DeviceKind::discrete;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return DeviceKind::integrated;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return DeviceKind::virtual_gpu;
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return DeviceKind::cpu;
    default: return DeviceKind::other;
  }
}

// The names of the device's extensions.
class Extensions {
 public:
  Extensions(const VulkanApi& api, VkPhysicalDevice device)
      : list_(list_of<VkExtensionProperties>("vkEnumerateDeviceExtensionProperties",
                                             [&](uint32_t* count, VkExtensionProperties* rows) {
                                               return api.EnumerateDeviceExtensionProperties(
                                                   device, nullptr, count, rows);
                                             })) {}
  bool has(std::string_view name) const {
    return std::any_of(list_.begin(), list_.end(),
                       [&](const VkExtensionProperties& e) { return name == e.extensionName; });
  }

 private:
  std::vector<VkExtensionProperties> list_;
};

bool supports_buffer_addresses(const VulkanApi& api, VkPhysicalDevice device,
                               const Extensions& extensions) {
  if (!extensions.has(VK_KHR_BUFFER_DEVICE_ADDRESS_EXTENSION_NAME)) return false;
  VkPhysicalDeviceBufferDeviceAddressFeatures addresses{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES};
  VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &addresses, {}};
  api.GetPhysicalDeviceFeatures2(device, &features);
  return addresses.bufferDeviceAddress && features.features.shaderInt64;
}

// A driver may otherwise run a kernel with subgroups that are not full.
bool can_set_subgroup_size(const VulkanApi& api, VkPhysicalDevice device,
                           const Extensions& extensions, uint32_t size) {
  if (!extensions.has(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME)) return false;
  VkPhysicalDeviceSubgroupSizeControlFeatures control{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES, nullptr, 0, 0};
  VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &control, {}};
  api.GetPhysicalDeviceFeatures2(device, &features);
  VkPhysicalDeviceSubgroupSizeControlProperties sizes{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES, nullptr, 0, 0, 0, 0};
  VkPhysicalDeviceProperties2 properties{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &sizes, {}};
  api.GetPhysicalDeviceProperties2(device, &properties);
  return control.subgroupSizeControl && control.computeFullSubgroups &&
         (sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) &&
         sizes.minSubgroupSize <= size && size <= sizes.maxSubgroupSize;
}

bool can_report_faults(const VulkanApi& api, VkPhysicalDevice device,
                       const Extensions& extensions) {
  if (!extensions.has(VK_EXT_DEVICE_FAULT_EXTENSION_NAME)) return false;
  VkPhysicalDeviceFaultFeaturesEXT faults{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FAULT_FEATURES_EXT};
  VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &faults, {}};
  api.GetPhysicalDeviceFeatures2(device, &features);
  return faults.deviceFault;
}

uint64_t max_buffer_bytes_of(const VulkanApi& api, VkPhysicalDevice device,
                             const Extensions& extensions) {
  if (!extensions.has(VK_KHR_MAINTENANCE_4_EXTENSION_NAME)) return ~uint64_t{0};
  VkPhysicalDeviceMaintenance4Properties limits{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES, nullptr, 0};
  VkPhysicalDeviceProperties2 properties{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &limits, {}};
  api.GetPhysicalDeviceProperties2(device, &properties);
  return limits.maxBufferSize;
}

std::vector<MatrixUnit> matrix_units_of(const VulkanInstance& instance, VkPhysicalDevice device,
                                        const Extensions& extensions) {
  const VulkanApi& api = instance.api;
  const auto query = reinterpret_cast<GetMatrixProperties>(api.GetInstanceProcAddr(
      instance.handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  if (!extensions.has(kMatrixExtension) || !query ||
      !extensions.has(VK_KHR_VULKAN_MEMORY_MODEL_EXTENSION_NAME))
    return {};
  Bfloat16Features bfloat16;
  MatrixFeatures matrices;
  VkPhysicalDeviceShaderFloat16Int8Features float16{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES, &matrices, 0, 0};
  VkPhysicalDeviceVulkanMemoryModelFeatures memory_model{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES, &float16, 0, 0, 0};
  VkPhysicalDeviceFeatures2 features{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &memory_model, {}};
  if (extensions.has(kBfloat16Extension)) matrices.pNext = &bfloat16;
  api.GetPhysicalDeviceFeatures2(device, &features);
  const bool has_float16 =
      float16.shaderFloat16 && extensions.has(VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME);
  if (!matrices.cooperativeMatrix || !memory_model.vulkanMemoryModel) return {};

  const auto rows = list_of<MatrixProperties>(
      "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR",
      [&](uint32_t* count, MatrixProperties* found) { return query(device, count, found); });
  std::vector<MatrixUnit> out;
  for (const MatrixProperties& row : rows) {
    constexpr int32_t kSubgroup = 3;
    const bool bf16 = row.AType == MatrixElement::bfloat16;
    if (bf16 ? !bfloat16.shaderBFloat16Type || !bfloat16.shaderBFloat16CooperativeMatrix
             : row.AType != MatrixElement::float16 || !has_float16)
      continue;
    if (row.BType == row.AType && row.CType == MatrixElement::float32 &&
        row.ResultType == MatrixElement::float32 && row.scope == kSubgroup)
      out.push_back({bf16, row.MSize, row.NSize, row.KSize});
  }
  return out;
}

// AMD's own driver (26.3 for Windows) was reported to end the process when it is asked for the
// matrix formats of an integrated GPU: github.com/GPUOpen-Drivers/AMDVLK/issues/422.
bool may_ask_for_matrices(const VkPhysicalDeviceProperties& device, VkDriverId driver) {
  const bool amd = driver == VK_DRIVER_ID_AMD_PROPRIETARY || driver == VK_DRIVER_ID_AMD_OPEN_SOURCE;
  return !amd || device.deviceType != VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
}

void set_timestamps(DeviceInfo& info, const VkQueueFamilyProperties& family) {
  info.timestamp_bits = family.timestampValidBits;
  if (info.timestamp_bits == 0) info.timestamp_period_ns = 0;
}

// Fills in a DeviceInfo except its index and whether the queue has timestamps.
DeviceInfo describe(const VulkanInstance& instance, VkPhysicalDevice device,
                    const Extensions& extensions) {
  const VulkanApi& api = instance.api;
  VkPhysicalDeviceDriverProperties driver{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
  VkPhysicalDeviceSubgroupProperties subgroup{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, &driver, 0, 0, 0, 0};
  VkPhysicalDeviceProperties2 properties{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &subgroup, {}};
  api.GetPhysicalDeviceProperties2(device, &properties);
  VkPhysicalDeviceMemoryProperties memory;
  api.GetPhysicalDeviceMemoryProperties(device, &memory);

  const VkPhysicalDeviceProperties& p = properties.properties;
  DeviceInfo info;
  info.name = p.deviceName;
  info.driver = cat(driver.driverName, *driver.driverInfo ? " " : "", driver.driverInfo);
  // Mesa 22 has the limit, and Mesa 25 does not; 23 and 24 were not tried.
  if (const int mesa = lavapipe_version(info); mesa > 0 && mesa < 25) info.max_iterations = 65535;
  info.kind = kind_of(p.deviceType);
  info.api_major = VK_API_VERSION_MAJOR(p.apiVersion);
  info.api_minor = VK_API_VERSION_MINOR(p.apiVersion);
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i)
    if (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
      info.memory_bytes = std::max<uint64_t>(info.memory_bytes, memory.memoryHeaps[i].size);
  info.max_buffer_bytes = max_buffer_bytes_of(api, device, extensions);
  info.max_storage_bytes = p.limits.maxStorageBufferRange;
  info.max_storage_buffers = p.limits.maxPerStageDescriptorStorageBuffers;
  std::copy_n(p.limits.maxComputeWorkGroupCount, 3, info.max_groups.begin());
  info.max_shared_bytes = p.limits.maxComputeSharedMemorySize;
  info.max_workgroup =
      std::min(p.limits.maxComputeWorkGroupInvocations, p.limits.maxComputeWorkGroupSize[0]);
  info.subgroup_size = subgroup.subgroupSize;
  const auto has = [&](VkSubgroupFeatureFlagBits operations) {
    return (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) &&
           (subgroup.supportedOperations & operations);
  };
  info.subgroup_broadcast = has(VK_SUBGROUP_FEATURE_BALLOT_BIT);
  info.subgroup_arithmetic = has(VK_SUBGROUP_FEATURE_ARITHMETIC_BIT);
  info.buffer_addresses = supports_buffer_addresses(api, device, extensions);
  info.imports_memory = extensions.has(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
  // With 16 lanes, the compiler of Mesa 26.2 overwrites its own memory at the first matrix.
  const bool compiles_matrices = lavapipe_version(info) == 0 || info.subgroup_size <= 8;
  if (compiles_matrices && may_ask_for_matrices(p, driver.driverID))
    info.matrix_units = matrix_units_of(instance, device, extensions);
  info.timestamp_period_ns = p.limits.timestampPeriod;
  return info;
}

int rank(DeviceKind kind) { return static_cast<int>(kind); }

}  // namespace

VulkanInstance::VulkanInstance(bool validation) {
  if (validation) {
    validating = has_layer(api, kValidationLayer);
    if (!validating)
      fail(Code::not_found, "validation was asked for, but the layer ", kValidationLayer,
           " is not installed (package vulkan-validationlayers)");
  }
  create(validating);
  api.load_instance(handle);
  if (!validating || !api.CreateDebugUtilsMessengerEXT) return;
  const auto info = messenger_info(this);
  api.CreateDebugUtilsMessengerEXT(handle, &info, nullptr, &messenger);
}

VulkanInstance::VulkanInstance(const HostDevice& host)
    : api(reinterpret_cast<PFN_vkGetInstanceProcAddr>(host.get_instance_proc_addr)),
      handle(static_cast<VkInstance>(host.instance)),
      owned(false) {
  if (!host.instance || !host.physical_device || !host.device || !host.queue)
    fail(Code::invalid_argument,
         "a shared Vulkan device needs its instance, physical device, device and queue");
  api.load_instance(handle);
}

void VulkanInstance::create(bool debug_utils) {
  VkApplicationInfo application{VK_STRUCTURE_TYPE_APPLICATION_INFO};
  application.pEngineName = "EchoTrain";
  application.apiVersion = VK_API_VERSION_1_3;
  VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  info.pApplicationInfo = &application;

  const VkValidationFeatureEnableEXT enabled[] = {
      VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
  VkValidationFeaturesEXT features{VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT};
  features.enabledValidationFeatureCount = 1;
  features.pEnabledValidationFeatures = enabled;
  std::vector<const char*> extensions;
  // Incomplete implementations such as MoltenVK are listed only on request.
  if (has_instance_extension(api, "VK_KHR_portability_enumeration")) {
    extensions.push_back("VK_KHR_portability_enumeration");
    info.flags |= 0x1;  // VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR
  }
  if (debug_utils) {
    extensions.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
    info.enabledLayerCount = 1;
    info.ppEnabledLayerNames = &kValidationLayer;
    info.pNext = &features;
  }
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  const VkResult result = api.CreateInstance(&info, nullptr, &handle);
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
    fail(Code::no_device,
         "no Vulkan driver is installed; install one, for instance the package "
         "mesa-vulkan-drivers (its lavapipe runs on any CPU)");
  check(result, "vkCreateInstance");
}

VulkanInstance::~VulkanInstance() {
  if (messenger) api.DestroyDebugUtilsMessengerEXT(handle, messenger, nullptr);
  if (handle && owned) api.DestroyInstance(handle, nullptr);
}

namespace {

// The properties of the device's queue families.
std::vector<VkQueueFamilyProperties> families_of(const VulkanApi& api, VkPhysicalDevice device) {
  uint32_t count = 0;
  api.GetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  api.GetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
  return families;
}

std::optional<uint32_t> family_for_uploads(const std::vector<VkQueueFamilyProperties>& families) {
  // 0x160: video decode, video encode, optical flow.
  constexpr VkQueueFlags kElse = VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT | 0x160;
  for (uint32_t i = 0; i < families.size(); ++i)
    if ((families[i].queueFlags & VK_QUEUE_TRANSFER_BIT) && !(families[i].queueFlags & kElse))
      return i;
  return std::nullopt;
}

}  // namespace

std::vector<PhysicalDevice> enumerate(VulkanInstance& instance) {
  const VulkanApi& api = instance.api;
  const auto handles = list_of<VkPhysicalDevice>(
      "vkEnumeratePhysicalDevices", [&](uint32_t* count, VkPhysicalDevice* found) {
        return api.EnumeratePhysicalDevices(instance.handle, count, found);
      });
  std::vector<PhysicalDevice> found;
  std::string too_old;
  for (const VkPhysicalDevice handle : handles) {
    const Extensions extensions(api, handle);
    PhysicalDevice device{handle, 0, describe(instance, handle, extensions)};
    if (device.info.api_major == 1 && device.info.api_minor < 1) {
      too_old = cat("'", device.info.name, "' (", device.info.driver, ")");
      continue;
    }
    const auto families = families_of(api, handle);
    const auto compute = std::find_if(families.begin(), families.end(), [](const auto& family) {
      return (family.queueFlags & VK_QUEUE_COMPUTE_BIT) != 0;
    });
    if (compute == families.end()) continue;
    device.queue_family = static_cast<uint32_t>(compute - families.begin());
    device.upload_family = family_for_uploads(families);
    set_timestamps(device.info, *compute);
    device.is_incomplete = extensions.has(kPortabilitySubset);
    device.sets_subgroup_size =
        can_set_subgroup_size(api, handle, extensions, device.info.subgroup_size);
    device.reports_faults = can_report_faults(api, handle, extensions);
    found.push_back(std::move(device));
  }
  if (found.empty() && !too_old.empty())
    fail(Code::no_device, "the Vulkan device ", too_old,
         " has Vulkan 1.0, and EchoTrain needs 1.1 or later; install a newer driver");
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return rank(a.info.kind) < rank(b.info.kind);
  });
  for (size_t i = 0; i < found.size(); ++i) found[i].info.index = static_cast<int>(i);
  return found;
}

PhysicalDevice physical_of(VulkanInstance& instance, const HostDevice& host) {
  const auto handle = static_cast<VkPhysicalDevice>(host.physical_device);
  PhysicalDevice device{handle, host.queue_family,
                        describe(instance, handle, Extensions(instance.api, handle))};
  const auto families = families_of(instance.api, handle);
  if (host.queue_family >= families.size() ||
      !(families[host.queue_family].queueFlags & VK_QUEUE_COMPUTE_BIT))
    fail(Code::invalid_argument, "queue family ", host.queue_family, " of device '",
         device.info.name, "' has no compute");
  set_timestamps(device.info, families[host.queue_family]);
  device.info.buffer_addresses = device.info.buffer_addresses && host.buffer_addresses;
  device.info.imports_memory = false;  // the program did not enable the extension
  if (!host.matrix_units) device.info.matrix_units.clear();
  return device;
}

std::vector<DeviceInfo> list_devices() {
  VulkanInstance instance(/*validation=*/false);
  std::vector<DeviceInfo> out;
  for (PhysicalDevice& device : enumerate(instance)) out.push_back(std::move(device.info));
  return out;
}

const char* device_kind_name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::discrete: return "discrete GPU";
    case DeviceKind::integrated: return "integrated GPU";
    case DeviceKind::virtual_gpu: return "virtual GPU";
    case DeviceKind::cpu: return "CPU";
    case DeviceKind::other: return "other";
  }
  return "?";
}

}  // namespace etr::gpu
