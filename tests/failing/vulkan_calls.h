// What the loader that fails keeps account of, and the functions that it takes the place of.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "vulkan_loader.h"

namespace etr::failing {

struct Object {
  std::string kind;
  int64_t count = 0;  // drivers may give equal objects one handle
  VkDevice device = VK_NULL_HANDLE;
};

struct Submission {
  VkDevice device;
  VkQueue queue;
  VkFence fence;
  std::set<uint64_t> used;
};

struct State {
  std::mutex mutex;
  VulkanFault fault;
  int64_t calls = 0;
  std::vector<size_t> error_counts;  // of each call
  std::string failed_call;
  std::vector<std::string> breaches;
  std::map<uint64_t, Object> objects;
  std::map<VkQueue, VkDevice> devices;
  std::map<VkCommandBuffer, std::set<uint64_t>> used;  // by recorded commands, and the pool
  std::vector<Submission> pending;
  std::set<VkDevice> lost, hung;
};

// Outlives what the library destroys at exit.
State& state();

template <typename Handle>
uint64_t number(Handle handle) {
  return reinterpret_cast<uint64_t>(handle);
}

// Whether a device hangs and has work that it will never finish.
bool is_stuck(const State& s, VkDevice device);
void breach(State& s, std::string text);
void add(const char* kind, uint64_t handle, VkDevice device);
void remove(const char* kind, uint64_t handle);

// Each function that can fail, and its errors (vk.xml), but for those of extensions that the
// library does not use, and for VK_ERROR_DEVICE_LOST of a device that exists.
#define ETR_MEMORY VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_OUT_OF_DEVICE_MEMORY
#define ETR_FALLIBLE(X)                                                                        \
  X(EnumerateInstanceVersion, VK_ERROR_OUT_OF_HOST_MEMORY)                                     \
  X(EnumerateInstanceLayerProperties, ETR_MEMORY)                                              \
  X(EnumerateInstanceExtensionProperties, ETR_MEMORY, VK_ERROR_LAYER_NOT_PRESENT)              \
  X(CreateInstance, ETR_MEMORY, VK_ERROR_INITIALIZATION_FAILED, VK_ERROR_LAYER_NOT_PRESENT,    \
    VK_ERROR_EXTENSION_NOT_PRESENT, VK_ERROR_INCOMPATIBLE_DRIVER)                              \
  X(EnumeratePhysicalDevices, ETR_MEMORY, VK_ERROR_INITIALIZATION_FAILED)                      \
  X(EnumerateDeviceExtensionProperties, ETR_MEMORY, VK_ERROR_LAYER_NOT_PRESENT)                \
  X(CreateDevice, ETR_MEMORY, VK_ERROR_INITIALIZATION_FAILED, VK_ERROR_EXTENSION_NOT_PRESENT,  \
    VK_ERROR_FEATURE_NOT_PRESENT, VK_ERROR_TOO_MANY_OBJECTS, VK_ERROR_DEVICE_LOST)             \
  X(DeviceWaitIdle, ETR_MEMORY)                                                                \
  X(CreateBuffer, ETR_MEMORY)                                                                  \
  X(AllocateMemory, ETR_MEMORY, VK_ERROR_TOO_MANY_OBJECTS, VK_ERROR_INVALID_EXTERNAL_HANDLE)   \
  X(BindBufferMemory, ETR_MEMORY)                                                              \
  X(MapMemory, ETR_MEMORY, VK_ERROR_MEMORY_MAP_FAILED)                                         \
  X(CreateShaderModule, ETR_MEMORY)                                                            \
  X(CreateDescriptorSetLayout, ETR_MEMORY)                                                     \
  X(CreatePipelineLayout, ETR_MEMORY)                                                          \
  X(CreateComputePipelines, ETR_MEMORY)                                                        \
  X(CreatePipelineCache, ETR_MEMORY)                                                           \
  X(GetPipelineCacheData, ETR_MEMORY)                                                          \
  X(CreateDescriptorPool, ETR_MEMORY)                                                          \
  X(AllocateDescriptorSets, ETR_MEMORY, VK_ERROR_FRAGMENTED_POOL, VK_ERROR_OUT_OF_POOL_MEMORY) \
  X(CreateCommandPool, ETR_MEMORY)                                                             \
  X(AllocateCommandBuffers, ETR_MEMORY)                                                        \
  X(BeginCommandBuffer, ETR_MEMORY)                                                            \
  X(EndCommandBuffer, ETR_MEMORY)                                                              \
  X(CreateQueryPool, ETR_MEMORY)                                                               \
  X(GetQueryPoolResults, ETR_MEMORY)                                                           \
  X(CreateFence, ETR_MEMORY)                                                                   \
  X(ResetFences, VK_ERROR_OUT_OF_DEVICE_MEMORY)                                                \
  X(WaitForFences, ETR_MEMORY)                                                                 \
  X(GetFenceStatus, ETR_MEMORY)                                                                \
  X(QueueSubmit, ETR_MEMORY)                                                                   \
  X(CreateSemaphore, ETR_MEMORY)                                                               \
  X(GetMemoryHostPointerPropertiesEXT, VK_ERROR_OUT_OF_HOST_MEMORY,                            \
    VK_ERROR_INVALID_EXTERNAL_HANDLE)                                                          \
  X(GetDeviceFaultInfoEXT, VK_ERROR_OUT_OF_HOST_MEMORY)

// Those that tell that the device is lost.
#define ETR_TELLING(X) \
  X(DeviceWaitIdle) X(GetQueryPoolResults) X(WaitForFences) X(GetFenceStatus) X(QueueSubmit)

// Those that cannot fail, and are followed.
#define ETR_FOLLOWED(X)         \
  X(GetPhysicalDeviceFeatures2) \
  X(DestroyInstance)            \
  X(DestroyDevice)              \
  X(GetDeviceQueue)             \
  X(FreeMemory)                 \
  X(CmdCopyBuffer)              \
  X(CmdFillBuffer)              \
  X(CmdBindPipeline)

// What vkCreateX makes, one at a time. vkDestroyX ends these, and pipelines.
#define ETR_CREATED(X)   \
  X(Buffer)              \
  X(ShaderModule)        \
  X(DescriptorSetLayout) \
  X(PipelineLayout)      \
  X(PipelineCache)       \
  X(DescriptorPool)      \
  X(CommandPool)         \
  X(QueryPool)           \
  X(Fence)               \
  X(Semaphore)
#define ETR_DESTROYED(X) ETR_CREATED(X) X(Pipeline)

#define X(name, ...)                                     \
  struct name {                                          \
    static constexpr const char* kName = "vk" #name;     \
    static constexpr VkResult kErrors[] = {__VA_ARGS__}; \
    static inline PFN_vk##name real = nullptr;           \
  };
ETR_FALLIBLE(X)
#undef X
template <typename Function>
constexpr bool kTellsLoss = false;
#define X(name) \
  template <>   \
  inline constexpr bool kTellsLoss<name> = true;
ETR_TELLING(X)
#undef X
#define X(name)                                \
  struct name {                                \
    static inline PFN_vk##name real = nullptr; \
  };
ETR_FOLLOWED(X)
#undef X
#define X(name)                                       \
  struct Destroy##name {                              \
    static inline PFN_vkDestroy##name real = nullptr; \
  };
ETR_DESTROYED(X)
#undef X

}  // namespace etr::failing
