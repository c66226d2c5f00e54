#include "gpu/upload.h"

#include <utility>

#include "core/error.h"
#include "gpu/vulkan_upload.h"

namespace etr::gpu {

Upload::Handles::~Handles() {
  if (in_flight) vk.settle(fence);
  if (vk.abandoned) return;
  if (fence) vk.api.DestroyFence(vk.handle, fence, nullptr);
  if (done) vk.api.DestroySemaphore(vk.handle, done, nullptr);
  if (pool) vk.api.DestroyCommandPool(vk.handle, pool, nullptr);
}

void Upload::Handles::create(const std::vector<Copy>& copies) {
  VkCommandPoolCreateInfo pool_info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  pool_info.queueFamilyIndex = vk.upload_family();
  vk.check(vk.api.CreateCommandPool(vk.handle, &pool_info, nullptr, &pool), "vkCreateCommandPool");
  const VkCommandBufferAllocateInfo buffer_info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                nullptr, pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
  vk.check(vk.api.AllocateCommandBuffers(vk.handle, &buffer_info, &commands),
           "vkAllocateCommandBuffers");
  const VkFenceCreateInfo fence_info{VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  vk.check(vk.api.CreateFence(vk.handle, &fence_info, nullptr, &fence), "vkCreateFence");
  create_semaphore();
  record(copies);
}

void Upload::Handles::create_semaphore() {
  const VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO};
  vk.check(vk.api.CreateSemaphore(vk.handle, &info, nullptr, &done), "vkCreateSemaphore");
}

// Needs no barriers: a submission sees the host's earlier writes, and the semaphore makes its own
// writes visible.
void Upload::Handles::record(const std::vector<Copy>& copies) {
  const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  vk.check(vk.api.BeginCommandBuffer(commands, &begin), "vkBeginCommandBuffer");
  for (const Copy& copy : copies) {
    const VkBufferCopy region{copy.from.offset, copy.to.offset, copy.from.size_bytes};
    vk.api.CmdCopyBuffer(commands, copy.from.handle, copy.to.handle, 1, &region);
  }
  vk.check(vk.api.EndCommandBuffer(commands), "vkEndCommandBuffer");
}

void Upload::Handles::wait() {
  if (!in_flight) return;
  vk.wait(fence);
  in_flight = false;
}

Upload::Upload(DevicePtr device, const std::vector<Copy>& copies)
    : device_(std::move(device)), handles_(std::make_unique<Handles>(device_->vk())) {
  handles_->create(copies);
}

Upload::~Upload() = default;

void Upload::wait() { handles_->wait(); }

void Upload::submit() {
  Handles& h = *handles_;
  h.wait();
  if (!h.awaited) {  // nobody waited for the semaphore, which may be signalled only once
    h.vk.api.DestroySemaphore(h.vk.handle, std::exchange(h.done, {}), nullptr);
    h.create_semaphore();
    h.awaited = true;
  }
  h.vk.check(h.vk.api.ResetFences(h.vk.handle, 1, &h.fence), "vkResetFences");
  VkSubmitInfo info{VK_STRUCTURE_TYPE_SUBMIT_INFO};
  info.commandBufferCount = 1;
  info.pCommandBuffers = &h.commands;
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &h.done;
  std::scoped_lock lock(h.vk.queue_mutex);
  h.vk.check(h.vk.api.QueueSubmit(h.vk.upload_queue, 1, &info, h.fence), "vkQueueSubmit");
  h.in_flight = true;
  h.awaited = false;
}

bool uploads_apart(const Device& device, uint64_t bytes) {
  // About 50 us of transfer; the extra submission costs 10 us.
  constexpr uint64_t kWorthwhile = uint64_t{1} << 20;
  const bool forced = device.options().lowered.uploads_apart;
  return device.vk().upload_queue && (forced || bytes >= kWorthwhile);
}

}  // namespace etr::gpu
