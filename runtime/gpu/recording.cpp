// Runs recordings: submissions, host turns, times.
#include "gpu/recording.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "gpu/vulkan_recording.h"
#include "gpu/vulkan_upload.h"

namespace etr::gpu {

Recording::~Recording() {
  try {
    wait();
  } catch (...) {  // the device is lost: nothing runs any more
  }
}

namespace {

// Keeps a program that shares its queue from submitting at the same time.
class HostLock {
 public:
  explicit HostLock(const VulkanDevice& vk) : vk_(vk) {
    if (vk_.host && vk_.host->lock) vk_.host->lock();
  }
  ~HostLock() {
    if (vk_.host && vk_.host->unlock) vk_.host->unlock();
  }
  HostLock(const HostLock&) = delete;
  HostLock& operator=(const HostLock&) = delete;

 private:
  const VulkanDevice& vk_;
};

}  // namespace

void Recording::Handles::reset_fences() {
  for (const Segment& segment : segments)
    check(vk.api.ResetFences(vk.handle, 1, &segment.fence), "vkResetFences");
}

void Recording::Handles::submit(const Segment& segment, Upload* after) {
  std::scoped_lock lock(vk.queue_mutex);
  const HostLock shared(vk);
  for (const VkCommandBuffer& part : segment.parts) {
    VkSubmitInfo info{VK_STRUCTURE_TYPE_SUBMIT_INFO};
    info.commandBufferCount = 1;
    info.pCommandBuffers = &part;
    // All stages wait, so that the step's timestamps also begin after the copies.
    const VkPipelineStageFlags waits = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    const bool first = &part == &segment.parts.front();
    if (first && after) {
      info.waitSemaphoreCount = 1;
      info.pWaitSemaphores = &after->handles_->done;
      info.pWaitDstStageMask = &waits;
    }
    const bool last = &part == &segment.parts.back();
    check(vk.api.QueueSubmit(vk.queue, 1, &info, last ? segment.fence : VkFence{}),
          "vkQueueSubmit");
    if (first && after) after->handles_->awaited = true;
  }
}

void Recording::Handles::submit_nothing() {
  std::scoped_lock lock(vk.queue_mutex);
  const HostLock shared(vk);
  check(vk.api.QueueSubmit(vk.queue, 0, nullptr, last_fence()), "vkQueueSubmit");
}

void Recording::submit(Upload* after, bool in_turn) {
  if (in_flight_) fail(Code::internal, "a recording was submitted while it was in flight");
  handles_->reset_fences();
  if (!has_host_turns() && !in_turn) {
    handles_->submit(handles_->segments.front(), after);
  } else {
    const auto job =
        std::make_shared<std::packaged_task<void()>>([this, after] { run_turns(after); });
    turns_ = job->get_future();
    handles_->vk.host_turns.post([job] { (*job)(); });
  }
  in_flight_ = has_run_ = true;
}

// Runs on the device's thread of host turns. Works run in the order of their begins, each after its
// segment has ended; meanwhile the device executes later segments.
void Recording::run_turns(Upload* after) {
  VulkanDevice& vk = handles_->vk;
  std::deque<std::pair<Work, VkFence>> begun;
  const auto wait_for = [&](VkFence fence) {
    check(vk.api.WaitForFences(vk.handle, 1, &fence, VK_TRUE, UINT64_MAX), "vkWaitForFences");
  };
  const auto do_first = [&] {
    wait_for(begun.front().second);
    (*begun.front().first)();
    begun.pop_front();
  };
  const auto is_pending = [&](const Work& work) {
    return std::any_of(begun.begin(), begun.end(), [&](const auto& b) { return b.first == work; });
  };
  VkFence submitted = VK_NULL_HANDLE;
  try {
    for (const Segment& segment : handles_->segments) {
      for (const Work& work : segment.awaited)
        while (is_pending(work)) do_first();
      handles_->submit(segment, submitted ? nullptr : after);
      submitted = segment.fence;
      for (const Work& work : segment.begun) begun.emplace_back(work, segment.fence);
    }
    while (!begun.empty()) do_first();
  } catch (
      ...) {  // submitted segments must end first, and wait() must find the last fence signalled
    const auto end = [&](VkFence fence) {
      vk.api.WaitForFences(vk.handle, 1, &fence, VK_TRUE, UINT64_MAX);
    };
    if (submitted) end(submitted);
    if (submitted != handles_->last_fence()) {
      handles_->submit_nothing();
      end(handles_->last_fence());
    }
    throw;
  }
}

void Recording::submit_nothing() {
  if (in_flight_) fail(Code::internal, "a recording was submitted while it was in flight");
  handles_->reset_fences();
  handles_->submit_nothing();
  in_flight_ = true;
  has_run_ = false;
}

void Recording::wait() {
  if (!in_flight_) return;
  in_flight_ = false;
  if (turns_.valid()) turns_.get();
  VulkanDevice& vk = handles_->vk;
  const VkFence fence = handles_->last_fence();
  check(vk.api.WaitForFences(vk.handle, 1, &fence, VK_TRUE, UINT64_MAX), "vkWaitForFences");
  read_timestamps();
}

bool Recording::done() { return done_within(0); }

bool Recording::done_within(double seconds) {
  if (!in_flight_) return true;
  const auto until = deadline_after(std::max(seconds, 0.0));
  if (turns_.valid() && turns_.wait_until(until) != std::future_status::ready) return false;
  VulkanDevice& vk = handles_->vk;
  const std::chrono::nanoseconds left = until - std::chrono::steady_clock::now();
  const VkFence fence = handles_->last_fence();
  return vk.api.WaitForFences(vk.handle, 1, &fence, VK_TRUE,
                              static_cast<uint64_t>(std::max<int64_t>(left.count(), 0))) !=
         VK_TIMEOUT;
}

void Recording::read_timestamps() {
  busy_seconds_ = begin_seconds_ = end_seconds_ = 0;
  if (!handles_->queries || !has_run_) return;
  VulkanDevice& vk = handles_->vk;
  std::vector<uint64_t> ticks(handles_->next_query);
  check(vk.api.GetQueryPoolResults(vk.handle, handles_->queries, 0, handles_->next_query,
                                   ticks.size() * sizeof ticks[0], ticks.data(), sizeof ticks[0],
                                   VK_QUERY_RESULT_64_BIT),
        "vkGetQueryPoolResults");
  const DeviceInfo& info = vk.physical.info;
  const double period_s = info.timestamp_period_ns * 1e-9;
  const auto seconds = [&](uint64_t from, uint64_t to) {
    return static_cast<double>(ticks_between(from, to, info.timestamp_bits)) * period_s;
  };
  begin_seconds_ = static_cast<double>(ticks.front()) * period_s;
  const double whole = seconds(ticks.front(), ticks.back());
  end_seconds_ = begin_seconds_ + whole;
  busy_seconds_ = whole;
  command_seconds_.clear();
  if (has_host_turns()) {
    for (size_t i = 1; i + 1 < ticks.size(); i += 2)
      busy_seconds_ -= seconds(ticks[i], ticks[i + 1]);
    return;
  }
  for (size_t i = 1; i + 1 < ticks.size(); ++i)
    command_seconds_.push_back(seconds(ticks[i - 1], ticks[i]));
}

void run_uncompared(const DevicePtr& device, const CommandList& commands) {
  Recording recording(device, commands);
  recording.submit();
  recording.wait();
}

}  // namespace etr::gpu
