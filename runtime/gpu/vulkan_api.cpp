#include "gpu/vulkan_api.h"

#include "core/error.h"

namespace etr::gpu {
namespace {

constexpr const char* kLoaderNames[] = {"libvulkan.so.1", "libvulkan.so", "libvulkan.1.dylib",
                                        "libMoltenVK.dylib", "vulkan-1.dll"};

std::unique_ptr<platform::Library> open_loader() {
  try {
    return std::make_unique<platform::Library>(kLoaderNames);
  } catch (const Error& error) {
    fail(Code::no_device, "the Vulkan loader is missing (", error.what(),
         "); install libvulkan1 and a driver, for instance mesa-vulkan-drivers (on Windows, the "
         "GPU's driver brings the loader)");
  }
}

}  // namespace

VulkanApi::VulkanApi(PFN_vkGetInstanceProcAddr entry) : GetInstanceProcAddr(entry) {
  if (!entry) {
    library_ = open_loader();
    GetInstanceProcAddr =
        reinterpret_cast<PFN_vkGetInstanceProcAddr>(library_->symbol("vkGetInstanceProcAddr"));
  }
  if (!GetInstanceProcAddr) fail(Code::no_device, "libvulkan lacks vkGetInstanceProcAddr");
#define X(name) name = reinterpret_cast<PFN_vk##name>(GetInstanceProcAddr(nullptr, "vk" #name));
  ETR_VK_GLOBAL(X)
#undef X
  if (!EnumerateInstanceVersion)
    fail(Code::no_device, "the Vulkan loader is older than 1.1; EchoTrain needs 1.1 or later");
}

void VulkanApi::load_instance(VkInstance instance) {
#define X(name) name = reinterpret_cast<PFN_vk##name>(GetInstanceProcAddr(instance, "vk" #name));
  ETR_VK_INSTANCE(X)
  X(CreateDebugUtilsMessengerEXT)
  X(DestroyDebugUtilsMessengerEXT)
#undef X
}

void VulkanApi::load_device(VkDevice device) {
#define X(name) name = reinterpret_cast<PFN_vk##name>(GetDeviceProcAddr(device, "vk" #name));
  ETR_VK_DEVICE(X)
  X(GetBufferDeviceAddress)
  X(GetMemoryHostPointerPropertiesEXT)
  X(GetDeviceFaultInfoEXT)
#undef X
  if (!GetBufferDeviceAddress)
    GetBufferDeviceAddress = reinterpret_cast<PFN_vkGetBufferDeviceAddress>(
        GetDeviceProcAddr(device, "vkGetBufferDeviceAddressKHR"));
}

void check(VkResult result, const char* call, std::string_view fault) {
  switch (result) {
    case VK_SUCCESS: return;
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
      fail(Code::out_of_memory, call, ": out of memory (VkResult ", static_cast<int>(result), ")");
    case VK_ERROR_DEVICE_LOST:
      fail(Code::device_lost, call, ": the device was lost; open it again and load a checkpoint",
           fault);
    default: fail(Code::device, call, " failed with VkResult ", static_cast<int>(result));
  }
}

}  // namespace etr::gpu
