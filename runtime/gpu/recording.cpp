// Runs recordings: submissions, host turns, times.
#include "gpu/recording.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "gpu/vulkan_recording.h"
#include "gpu/vulkan_upload.h"

namespace etr::gpu {

Recording::~Recording() {
  if (!in_flight_) return;
  try {
    if (turns_.valid()) turns_.get();
    handles_->vk.settle(handles_->last_fence());
  } catch (...) {  // of a host turn: run_turns() has seen to the rest
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

// Before a submission.
void Recording::Handles::reset_fences() {
  waited = 0;
  turns_failed = false;
  for (const Segment& segment : segments)
    vk.check(vk.api.ResetFences(vk.handle, 1, &segment.fence), "vkResetFences");
}

// Waits for parts that were submitted before one that could not be.
void Recording::Handles::end_parts(VkFence fence) {
  const VkResult result = vk.api.QueueSubmit(vk.queue, 0, nullptr, fence);
  if (result == VK_SUCCESS)
    vk.settle(fence);
  else if (result != VK_ERROR_DEVICE_LOST)
    vk.abandoned = true;
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
    const VkResult result =
        vk.api.QueueSubmit(vk.queue, 1, &info, last ? segment.fence : VkFence{});
    if (result != VK_SUCCESS && !first) end_parts(segment.fence);
    vk.check(result, "vkQueueSubmit");
    if (first && after) after->handles_->awaited = true;
  }
}

void Recording::Handles::submit_nothing() {
  std::scoped_lock lock(vk.queue_mutex);
  const HostLock shared(vk);
  vk.check(vk.api.QueueSubmit(vk.queue, 0, nullptr, last_fence()), "vkQueueSubmit");
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
  const auto do_first = [&] {
    vk.wait(begun.front().second);
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
  } catch (...) {  // submitted segments must end first
    if (submitted) vk.settle(submitted);
    handles_->turns_failed = true;
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

// After a failure, the submission is still in flight, and may be waited for again; but not after
// that of a host turn, which has ended it.
void Recording::wait() {
  if (!in_flight_) return;
  if (turns_.valid()) try {
      turns_.get();
    } catch (...) {
      in_flight_ = false;
      throw;
    }
  constexpr double kForEver = std::numeric_limits<double>::infinity();
  handles_->vk.wait(handles_->last_fence(), kForEver, handles_->waited);
  read_timestamps();
  in_flight_ = false;
}

bool Recording::done() { return done_within(0); }

bool Recording::done_within(double seconds) {
  if (!in_flight_) return true;
  const auto until = deadline_after(std::max(seconds, 0.0));
  if (turns_.valid() && turns_.wait_until(until) != std::future_status::ready) return false;
  if (handles_->turns_failed) return true;
  const std::chrono::duration<double> left = until - std::chrono::steady_clock::now();
  return handles_->vk.wait(handles_->last_fence(), std::max(left.count(), 0.0), handles_->waited);
}

void Recording::read_timestamps() {
  busy_seconds_ = begin_seconds_ = end_seconds_ = 0;
  if (!handles_->queries || !has_run_) return;
  VulkanDevice& vk = handles_->vk;
  std::vector<uint64_t> ticks(handles_->next_query);
  vk.check(vk.api.GetQueryPoolResults(vk.handle, handles_->queries, 0, handles_->next_query,
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
  Recording recording(device, commands, /*timed=*/false, parts_for(*device, commands, 0));
  recording.submit();
  recording.wait();
}

}  // namespace etr::gpu
