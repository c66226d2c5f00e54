// The Vulkan functions that the runtime calls, fetched from the loader at run time.
//
// The loader (libvulkan) is opened with dlopen, never linked: a program that links EchoTrain starts
// on a machine without Vulkan and gets an error that says what is missing. Only files of this room
// include this header.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include <memory>
#include <string_view>

#include "core/platform.h"

namespace etr::gpu {

#define ETR_VK_GLOBAL(X) \
  X(EnumerateInstanceVersion) X(EnumerateInstanceLayerProperties) \
  X(EnumerateInstanceExtensionProperties) X(CreateInstance)

#define ETR_VK_INSTANCE(X) \
  X(DestroyInstance) X(EnumeratePhysicalDevices) X(GetPhysicalDeviceProperties2) \
  X(GetPhysicalDeviceFeatures2) X(GetPhysicalDeviceMemoryProperties) \
  X(GetPhysicalDeviceQueueFamilyProperties) X(EnumerateDeviceExtensionProperties) \
  X(CreateDevice) X(GetDeviceProcAddr)

#define ETR_VK_DEVICE(X) \
  X(DestroyDevice) X(GetDeviceQueue) X(DeviceWaitIdle) X(CreateBuffer) X(DestroyBuffer) \
  X(GetBufferMemoryRequirements) X(AllocateMemory) X(FreeMemory) X(BindBufferMemory) \
  X(MapMemory) X(CreateShaderModule) X(DestroyShaderModule) X(CreateDescriptorSetLayout) \
  X(DestroyDescriptorSetLayout) X(CreatePipelineLayout) X(DestroyPipelineLayout) \
  X(CreateComputePipelines) X(DestroyPipeline) X(CreatePipelineCache) X(GetPipelineCacheData) \
  X(DestroyPipelineCache) X(CreateDescriptorPool) X(DestroyDescriptorPool) \
  X(AllocateDescriptorSets) X(UpdateDescriptorSets) X(CreateCommandPool) X(DestroyCommandPool) \
  X(AllocateCommandBuffers) X(BeginCommandBuffer) X(EndCommandBuffer) X(CmdBindPipeline) \
  X(CmdBindDescriptorSets) X(CmdPushConstants) X(CmdDispatch) X(CmdPipelineBarrier) \
  X(CmdCopyBuffer) X(CmdFillBuffer) X(CreateQueryPool) X(DestroyQueryPool) \
  X(CmdResetQueryPool) X(CmdWriteTimestamp) X(GetQueryPoolResults) X(CreateFence) \
  X(DestroyFence) X(ResetFences) X(WaitForFences) X(GetFenceStatus) X(QueueSubmit) \
  X(CreateSemaphore) X(DestroySemaphore)

struct VulkanApi {
#define X(name) PFN_vk##name name = nullptr;
  ETR_VK_GLOBAL(X) ETR_VK_INSTANCE(X) ETR_VK_DEVICE(X)
#undef X
  // Optional, fetched by hand: absent on a driver without the feature.
  PFN_vkGetBufferDeviceAddress GetBufferDeviceAddress = nullptr;
  PFN_vkGetMemoryHostPointerPropertiesEXT GetMemoryHostPointerPropertiesEXT = nullptr;
  PFN_vkGetDeviceFaultInfoEXT GetDeviceFaultInfoEXT = nullptr;
  PFN_vkCreateDebugUtilsMessengerEXT CreateDebugUtilsMessengerEXT = nullptr;
  PFN_vkDestroyDebugUtilsMessengerEXT DestroyDebugUtilsMessengerEXT = nullptr;
  PFN_vkGetInstanceProcAddr GetInstanceProcAddr = nullptr;

  // Opens the loader unless `entry` is given. Throws Error(no_device), naming what was tried.
  explicit VulkanApi(PFN_vkGetInstanceProcAddr entry = nullptr);
  void load_instance(VkInstance instance);
  void load_device(VkDevice device);
  void keep_loader() { library_.release(); }  // loaded until the process ends

 private:
  std::unique_ptr<platform::Library> library_;
};

// Throws the Error that `result` stands for, naming the call; returns on VK_SUCCESS. `fault`: what
// the driver says of a lost device. For the calls of a device that exists, see VulkanDevice::check.
void check(VkResult result, const char* call, std::string_view fault = {});

}  // namespace etr::gpu
