#include "vulkan_loader.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "vulkan_calls.h"
#include "vulkan_offer.h"

namespace etr::failing {
namespace {

// ---- faults ------------------------------------------------------------------------------------

// The device of a call, by its first argument.
VkDevice device_of(const State&, VkDevice device) { return device; }
VkDevice device_of(const State& s, VkQueue queue) {
  const auto found = s.devices.find(queue);
  return found == s.devices.end() ? VK_NULL_HANDLE : found->second;
}
template <typename Other>
VkDevice device_of(const State&, const Other&) {
  return VK_NULL_HANDLE;
}

void end_work(State& s, VkDevice device) {
  std::erase_if(s.pending, [&](const Submission& one) { return one.device == device; });
}

// A lost device no longer runs anything. This one still has to be stopped. Its queues are not used
// meanwhile: the caller holds the mutex, and a submission takes it.
void lose(State& s, VkDevice device) {
  s.lost.insert(device);
  DeviceWaitIdle::real(device);
  end_work(s, device);
}

std::string told(const char* call, VkResult error) {
  return std::string(call) + ": VkResult " + std::to_string(static_cast<int>(error));
}

// Returns the error of this call, or VK_SUCCESS if it is to be carried out.
template <typename F, typename First, typename... Rest>
VkResult fault_of(First first, Rest...) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  constexpr size_t kCount = std::size(F::kErrors);
  const VkDevice device = device_of(s, first);
  const bool meant = ++s.calls == s.fault.at;
  s.error_counts.push_back(kCount);
  if (meant && s.fault.kind == VulkanFault::refuse) {
    const VkResult error = F::kErrors[s.fault.error % kCount];
    s.failed_call = told(F::kName, error);
    return error;
  }
  const bool due = s.fault.at > 0 && s.calls >= s.fault.at && s.failed_call.empty() && device;
  if (due && s.fault.kind == VulkanFault::lose) {
    s.failed_call = told(F::kName, VK_ERROR_DEVICE_LOST);
    lose(s, device);
  }
  if (due && s.fault.kind == VulkanFault::hang) {
    s.failed_call = std::string(F::kName) + ": hangs";
    s.hung.insert(device);
  }
  return kTellsLoss<F> && device && s.lost.contains(device) ? VK_ERROR_DEVICE_LOST : VK_SUCCESS;
}

// ---- carrying calls out -------------------------------------------------------------------------

template <typename F, typename... A>
VkResult carry_out(F, A... arguments) {
  return F::real(arguments...);
}

VkResult carry_out(EnumerateDeviceExtensionProperties, VkPhysicalDevice device, const char* layer,
                   uint32_t* count, VkExtensionProperties* rows) {
  const auto real = EnumerateDeviceExtensionProperties::real;
  if (!offers()) return real(device, layer, count, rows);
  return list_extensions(real, device, layer, count, rows);
}

VkResult carry_out(CreateDevice, VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                   const VkAllocationCallbacks* allocator, VkDevice* made) {
  return make_device(CreateDevice::real, physical, info, allocator, made);
}

bool is_stuck(VkDevice device) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  return failing::is_stuck(s, device);
}

VkResult carry_out(QueueSubmit, VkQueue queue, uint32_t count, const VkSubmitInfo* infos,
                   VkFence fence) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  Submission submission{device_of(s, queue), queue, fence, {}};
  for (uint32_t i = 0; i < count; ++i)
    for (uint32_t j = 0; j < infos[i].commandBufferCount; ++j)
      submission.used.merge(std::set(s.used[infos[i].pCommandBuffers[j]]));
  s.pending.push_back(submission);
  if (s.hung.contains(submission.device)) return VK_SUCCESS;
  const VkResult result = QueueSubmit::real(queue, count, infos, fence);
  if (result != VK_SUCCESS) s.pending.pop_back();
  return result;
}

// All that the queue was given before a fence has ended with it.
void ended(State& s, VkFence fence) {
  for (size_t i = 0; i < s.pending.size(); ++i) {
    if (s.pending[i].fence != fence) continue;
    const VkQueue queue = s.pending[i].queue;
    const auto end = s.pending.begin() + static_cast<ptrdiff_t>(i) + 1;
    s.pending.erase(std::remove_if(s.pending.begin(), end,
                                   [&](const Submission& one) { return one.queue == queue; }),
                    end);
    return;
  }
}

bool is_pending(VkFence fence) {
  const State& s = state();
  const std::scoped_lock lock(state().mutex);
  return std::any_of(s.pending.begin(), s.pending.end(),
                     [&](const Submission& one) { return one.fence == fence; });
}

VkResult carry_out(WaitForFences, VkDevice device, uint32_t count, const VkFence* fences,
                   VkBool32 all, uint64_t timeout) {
  State& s = state();
  if (is_stuck(device) && is_pending(fences[0])) {
    if (timeout != UINT64_MAX) {
      std::this_thread::yield();  // as if the time had passed
      return VK_TIMEOUT;
    }
    const std::scoped_lock lock(s.mutex);
    breach(s, "waits without end for a device that hangs");
    return VK_ERROR_DEVICE_LOST;
  }
  const VkResult result = WaitForFences::real(device, count, fences, all, timeout);
  const std::scoped_lock lock(s.mutex);
  if (result == VK_SUCCESS)
    for (uint32_t i = 0; i < count; ++i) ended(s, fences[i]);
  return result;
}

VkResult carry_out(GetFenceStatus, VkDevice device, VkFence fence) {
  State& s = state();
  if (is_stuck(device)) return VK_NOT_READY;
  const VkResult result = GetFenceStatus::real(device, fence);
  const std::scoped_lock lock(s.mutex);
  if (result == VK_SUCCESS) ended(s, fence);
  return result;
}

VkResult carry_out(DeviceWaitIdle, VkDevice device) {
  State& s = state();
  if (is_stuck(device)) {
    const std::scoped_lock lock(s.mutex);
    breach(s, "waits without end for a device that hangs");
    return VK_ERROR_DEVICE_LOST;
  }
  const VkResult result = DeviceWaitIdle::real(device);
  const std::scoped_lock lock(s.mutex);
  if (result == VK_SUCCESS) end_work(s, device);
  return result;
}

VkResult carry_out(ResetFences, VkDevice device, uint32_t count, const VkFence* fences) {
  for (uint32_t i = 0; i < count; ++i) {
    if (!is_pending(fences[i])) continue;
    const std::scoped_lock lock(state().mutex);
    breach(state(), "resets a fence that the device uses");
  }
  return ResetFences::real(device, count, fences);
}

// ---- what calls have made -----------------------------------------------------------------------

template <typename F, typename... A>
void note(F, A...) {}

void note(CreateInstance, const VkInstanceCreateInfo*, const VkAllocationCallbacks*,
          VkInstance* made) {
  add("instance", number(*made), VK_NULL_HANDLE);
}
void note(CreateDevice, VkPhysicalDevice, const VkDeviceCreateInfo*, const VkAllocationCallbacks*,
          VkDevice* made) {
  {
    State& s = state();  // a new device may have the handle of one that is gone
    const std::scoped_lock lock(s.mutex);
    s.lost.erase(*made);
    s.hung.erase(*made);
  }
  add("device", number(*made), *made);
}
void note(AllocateMemory, VkDevice device, const VkMemoryAllocateInfo*,
          const VkAllocationCallbacks*, VkDeviceMemory* made) {
  add("memory", number(*made), device);
}
void note(CreateComputePipelines, VkDevice device, VkPipelineCache, uint32_t count,
          const VkComputePipelineCreateInfo*, const VkAllocationCallbacks*, VkPipeline* made) {
  for (uint32_t i = 0; i < count; ++i) add("Pipeline", number(made[i]), device);
}
void note(AllocateCommandBuffers, VkDevice, const VkCommandBufferAllocateInfo* info,
          VkCommandBuffer* made) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  for (uint32_t i = 0; i < info->commandBufferCount; ++i)
    s.used[made[i]] = {number(info->commandPool)};
}
#define X(name)                                                         \
  void note(Create##name, VkDevice device, const Vk##name##CreateInfo*, \
            const VkAllocationCallbacks*, Vk##name* made) {             \
    add(#name, number(*made), device);                                  \
  }
ETR_CREATED(X)
#undef X

// ---- the functions that take the place of the driver's ------------------------------------------

template <typename F, typename Pointer = decltype(F::real)>
struct Hook;
template <typename F, typename... A>
struct Hook<F, VkResult(VKAPI_PTR*)(A...)> {
  static VKAPI_ATTR VkResult VKAPI_CALL call(A... arguments) {
    if (const VkResult error = fault_of<F>(arguments...); error != VK_SUCCESS) return error;
    const VkResult result = carry_out(F{}, arguments...);
    if (result == VK_SUCCESS) note(F{}, arguments...);
    return result;
  }
};

#define X(name)                                                                       \
  VKAPI_ATTR void VKAPI_CALL destroy_##name(VkDevice device, Vk##name handle,         \
                                            const VkAllocationCallbacks* allocator) { \
    remove(#name, number(handle));                                                    \
    if (!is_stuck(device)) Destroy##name::real(device, handle, allocator);            \
  }
ETR_DESTROYED(X)
#undef X

VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice device, VkDeviceMemory memory,
                                       const VkAllocationCallbacks* allocator) {
  remove("memory", number(memory));
  if (!is_stuck(device)) FreeMemory::real(device, memory, allocator);
}

VKAPI_ATTR void VKAPI_CALL get_features(VkPhysicalDevice device,
                                        VkPhysicalDeviceFeatures2* features) {
  GetPhysicalDeviceFeatures2::real(device, features);
  if (offers()) tell_features(features);
}

VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance instance,
                                            const VkAllocationCallbacks* allocator) {
  remove("instance", number(instance));
  DestroyInstance::real(instance, allocator);
}

VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice device, const VkAllocationCallbacks* allocator) {
  const bool stuck = is_stuck(device);
  remove("device", number(device));
  {
    State& s = state();
    const std::scoped_lock lock(s.mutex);
    for (const auto& [handle, object] : s.objects)
      if (object.device == device) breach(s, "destroys a device that still has a " + object.kind);
    for (const Submission& submission : s.pending)
      if (submission.device == device) breach(s, "destroys a device that is at work");
  }
  if (!stuck) DestroyDevice::real(device, allocator);
}

VKAPI_ATTR void VKAPI_CALL get_device_queue(VkDevice device, uint32_t family, uint32_t index,
                                            VkQueue* queue) {
  GetDeviceQueue::real(device, family, index, queue);
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  s.devices[*queue] = device;
}

void uses(VkCommandBuffer commands, uint64_t handle) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  s.used[commands].insert(handle);
}

VKAPI_ATTR void VKAPI_CALL copy_buffer(VkCommandBuffer commands, VkBuffer from, VkBuffer to,
                                       uint32_t count, const VkBufferCopy* regions) {
  uses(commands, number(from));
  uses(commands, number(to));
  CmdCopyBuffer::real(commands, from, to, count, regions);
}

VKAPI_ATTR void VKAPI_CALL fill_buffer(VkCommandBuffer commands, VkBuffer to, VkDeviceSize offset,
                                       VkDeviceSize size, uint32_t word) {
  uses(commands, number(to));
  CmdFillBuffer::real(commands, to, offset, size, word);
}

VKAPI_ATTR void VKAPI_CALL bind_pipeline(VkCommandBuffer commands, VkPipelineBindPoint point,
                                         VkPipeline pipeline) {
  uses(commands, number(pipeline));
  CmdBindPipeline::real(commands, point, pipeline);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char* name);

// Puts a function in the place of the real one, which it remembers.
template <typename F>
PFN_vkVoidFunction instead(PFN_vkVoidFunction real, decltype(F::real) function) {
  if (!real) return nullptr;
  F::real = reinterpret_cast<decltype(F::real)>(real);
  return reinterpret_cast<PFN_vkVoidFunction>(function);
}

PFN_vkVoidFunction wrapped(std::string_view name, PFN_vkVoidFunction real) {
  if (const PFN_vkVoidFunction offered = offered_function(name)) real = offered;
#define X(function, ...) \
  if (name == "vk" #function) return instead<function>(real, Hook<function>::call);
  ETR_FALLIBLE(X)
#undef X
#define X(object) \
  if (name == "vkDestroy" #object) return instead<Destroy##object>(real, destroy_##object);
  ETR_DESTROYED(X)
#undef X
  if (name == "vkGetPhysicalDeviceFeatures2")
    return instead<GetPhysicalDeviceFeatures2>(real, get_features);
  if (name == "vkDestroyInstance") return instead<DestroyInstance>(real, destroy_instance);
  if (name == "vkDestroyDevice") return instead<DestroyDevice>(real, destroy_device);
  if (name == "vkFreeMemory") return instead<FreeMemory>(real, free_memory);
  if (name == "vkGetDeviceQueue") return instead<GetDeviceQueue>(real, get_device_queue);
  if (name == "vkCmdCopyBuffer") return instead<CmdCopyBuffer>(real, copy_buffer);
  if (name == "vkCmdFillBuffer") return instead<CmdFillBuffer>(real, fill_buffer);
  if (name == "vkCmdBindPipeline") return instead<CmdBindPipeline>(real, bind_pipeline);
  return real;
}

PFN_vkGetInstanceProcAddr real_loader() {
  static const auto function = [] {
    void* library = dlopen(ETR_REAL_VULKAN_LOADER, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      std::fprintf(stderr, "the system's Vulkan loader: %s\n", dlerror());
      std::abort();
    }
    return reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
  }();
  return function;
}

PFN_vkGetDeviceProcAddr real_device_functions = nullptr;

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char* name) {
  return wrapped(name, real_device_functions(device, name));
}

}  // namespace

}  // namespace etr::failing

extern "C" __attribute__((visibility("default"))) PFN_vkVoidFunction vkGetInstanceProcAddr(
    VkInstance instance, const char* name) {
  using namespace etr::failing;
  const PFN_vkVoidFunction real = real_loader()(instance, name);
  if (std::string_view(name) != "vkGetDeviceProcAddr") return wrapped(name, real);
  real_device_functions = reinterpret_cast<PFN_vkGetDeviceProcAddr>(real);
  return reinterpret_cast<PFN_vkVoidFunction>(device_function);
}
