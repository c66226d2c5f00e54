// The Vulkan handles of a Recording. Internal to gpu/.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gpu/recording.h"
#include "gpu/vulkan_device.h"

namespace etr::gpu {

using Work = std::shared_ptr<const std::function<void()>>;

// The commands between two host turns, which are submitted together.
struct Segment {
  std::vector<Work> awaited;  // must return before the segment is submitted
  std::vector<Work> begun;    // start when the segment has ended
  std::vector<VkCommandBuffer> parts;
  VkFence fence = VK_NULL_HANDLE;
  bool empty = true;
};

struct Recording::Handles {
  explicit Handles(VulkanDevice& device) : vk(device) {}
  ~Handles();

  void create(const CommandList& commands, bool timed, int parts);
  void next_part();
  void begin_segment();
  void end_segment();
  void cut(const HostTurn& turn);
  void create_descriptor_pool(const CommandList& commands);
  void barrier(VkPipelineStageFlags from, VkAccessFlags writes, VkPipelineStageFlags to,
               VkAccessFlags then);
  void timestamp();
  void record(const Dispatch& dispatch);
  void record(const Copy& copy);
  void record(const Fill& fill);
  void record(const HostTurn& turn) { cut(turn); }
  void bind_descriptors(const Dispatch& dispatch);
  void push_constants(const Dispatch& dispatch);
  void submit(const Segment& segment, Upload* after);
  void end_parts(VkFence fence);
  void submit_nothing();  // only signals last_fence()
  void reset_fences();
  VkFence last_fence() const { return segments.back().fence; }

  VulkanDevice& vk;
  VkCommandPool pool = VK_NULL_HANDLE;
  std::vector<VkCommandBuffer> unused;  // allocated, not yet begun
  std::vector<Segment> segments;
  VkCommandBuffer commands_buffer = VK_NULL_HANDLE;  // the one being recorded
  VkDescriptorPool descriptors = VK_NULL_HANDLE;
  VkQueryPool queries = VK_NULL_HANDLE;
  uint32_t query_count = 0, next_query = 0;
  double waited = 0;          // seconds spent waiting for the last submission
  bool turns_failed = false;  // whether its host turns failed; valid once they are over
};

}  // namespace etr::gpu
