#include "gpu/recording.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "gpu/comparison.h"
#include "gpu/vulkan_kernel.h"
#include "gpu/vulkan_upload.h"

namespace etr::gpu {
namespace {

// The ranges that commands since the last barrier have read and written.
class HazardTracker {
 public:
  // Whether `uses` conflicts with what came before: read after write, write after read or write.
  bool conflicts(const std::vector<Binding>& uses) const {
    return std::any_of(uses.begin(), uses.end(), [&](const Binding& use) {
      return overlaps(writes_, use.buffer) ||
             (use.access != Access::read && overlaps(reads_, use.buffer));
    });
  }
  void add(const std::vector<Binding>& uses) {
    for (const Binding& use : uses)
      (use.access == Access::read ? reads_ : writes_).push_back(use.buffer);
  }
  void clear() {
    reads_.clear();
    writes_.clear();
  }

 private:
  static bool overlaps(const std::vector<Buffer>& ranges, const Buffer& b) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [&](const Buffer& a) { return overlap(a, b); });
  }
  std::vector<Buffer> reads_, writes_;
};

std::vector<Binding> uses_of(const Command& command) {
  if (const auto* dispatch = std::get_if<Dispatch>(&command)) return dispatch->bindings;
  if (const auto* copy = std::get_if<Copy>(&command))
    return {{copy->from, Access::read}, {copy->to, Access::write}};
  return {{std::get<Fill>(command).to, Access::write}};
}

constexpr VkPipelineStageFlags kWork =
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkAccessFlags kWorkWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags kWorkAll =
    kWorkWrites | VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;

}  // namespace

struct Recording::Handles {
  explicit Handles(VulkanDevice& device) : vk(device) {}
  ~Handles() {
    if (fence) vk.api.DestroyFence(vk.handle, fence, nullptr);
    if (queries) vk.api.DestroyQueryPool(vk.handle, queries, nullptr);
    if (descriptors) vk.api.DestroyDescriptorPool(vk.handle, descriptors, nullptr);
    if (pool) vk.api.DestroyCommandPool(vk.handle, pool, nullptr);
  }

  void create(const CommandList& commands, bool timed, int parts);
  void next_part();
  void create_descriptor_pool(const CommandList& commands);
  void barrier(VkPipelineStageFlags from, VkAccessFlags writes, VkPipelineStageFlags to,
               VkAccessFlags then) {
    const VkMemoryBarrier memory{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, writes, then};
    vk.api.CmdPipelineBarrier(commands_buffer, from, to, 0, 1, &memory, 0, nullptr, 0, nullptr);
  }
  void timestamp(uint32_t query) {
    vk.api.CmdWriteTimestamp(commands_buffer, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries, query);
  }
  void record(const Dispatch& dispatch);
  void record(const Copy& copy);
  void record(const Fill& fill) {
    vk.api.CmdFillBuffer(commands_buffer, fill.to.handle, fill.to.offset, fill.to.size_bytes,
                         fill.word);
  }
  void bind_descriptors(const Dispatch& dispatch);
  void push_constants(const Dispatch& dispatch);

  VulkanDevice& vk;
  VkCommandPool pool = VK_NULL_HANDLE;
  std::vector<VkCommandBuffer> parts;
  VkCommandBuffer commands_buffer = VK_NULL_HANDLE;  // the one that is being recorded
  VkDescriptorPool descriptors = VK_NULL_HANDLE;
  VkQueryPool queries = VK_NULL_HANDLE;
  VkFence fence = VK_NULL_HANDLE;
  uint32_t query_count = 0;
};

void Recording::Handles::create_descriptor_pool(const CommandList& commands) {
  uint32_t sets = 0, slots = 0;
  for (const Command& command : commands) {
    const auto* dispatch = std::get_if<Dispatch>(&command);
    if (!dispatch || dispatch->kernel->by_address) continue;
    ++sets;
    slots += static_cast<uint32_t>(dispatch->bindings.size());
  }
  if (sets == 0) return;
  const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, slots};
  VkDescriptorPoolCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO};
  info.maxSets = sets;
  info.poolSizeCount = 1;
  info.pPoolSizes = &size;
  check(vk.api.CreateDescriptorPool(vk.handle, &info, nullptr, &descriptors),
        "vkCreateDescriptorPool");
}

void Recording::Handles::create(const CommandList& commands, bool timed, int part_count) {
  VkCommandPoolCreateInfo pool_info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  pool_info.queueFamilyIndex = vk.physical.queue_family;
  check(vk.api.CreateCommandPool(vk.handle, &pool_info, nullptr, &pool), "vkCreateCommandPool");
  parts.resize(static_cast<size_t>(part_count));
  VkCommandBufferAllocateInfo buffer_info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr,
                                          pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                          static_cast<uint32_t>(part_count)};
  check(vk.api.AllocateCommandBuffers(vk.handle, &buffer_info, parts.data()),
        "vkAllocateCommandBuffers");
  const VkFenceCreateInfo fence_info{VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  check(vk.api.CreateFence(vk.handle, &fence_info, nullptr, &fence), "vkCreateFence");
  if (vk.physical.info.timestamp_period_ns > 0) {
    VkQueryPoolCreateInfo query_info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
    query_info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    query_info.queryCount = query_count = timed ? static_cast<uint32_t>(commands.size()) + 2 : 2;
    check(vk.api.CreateQueryPool(vk.handle, &query_info, nullptr, &queries), "vkCreateQueryPool");
  }
  create_descriptor_pool(commands);
}

void Recording::Handles::bind_descriptors(const Dispatch& dispatch) {
  VkDescriptorSetAllocateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr,
                                   descriptors, 1, &dispatch.kernel->set_layout};
  VkDescriptorSet set = VK_NULL_HANDLE;
  check(vk.api.AllocateDescriptorSets(vk.handle, &info, &set), "vkAllocateDescriptorSets");
  std::vector<VkDescriptorBufferInfo> buffers;
  for (const Binding& binding : dispatch.bindings)
    buffers.push_back({binding.buffer.handle, binding.buffer.offset, binding.buffer.size_bytes});
  VkWriteDescriptorSet write{VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET};
  write.dstSet = set;
  write.descriptorCount = static_cast<uint32_t>(buffers.size());
  write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
  write.pBufferInfo = buffers.data();
  vk.api.UpdateDescriptorSets(vk.handle, 1, &write, 0, nullptr);
  vk.api.CmdBindDescriptorSets(commands_buffer, VK_PIPELINE_BIND_POINT_COMPUTE,
                               dispatch.kernel->layout, 0, 1, &set, 0, nullptr);
}

void Recording::Handles::push_constants(const Dispatch& dispatch) {
  std::vector<std::byte> block;
  if (dispatch.kernel->by_address)
    for (const Binding& binding : dispatch.bindings) {
      const auto bytes = push_bytes(binding.buffer.address);
      block.insert(block.end(), bytes.begin(), bytes.end());
    }
  block.insert(block.end(), dispatch.push.begin(), dispatch.push.end());
  if (block.size() != dispatch.kernel->push_bytes)
    fail(Code::internal, dispatch.label, ": shader '", dispatch.kernel->name, "' takes ",
         dispatch.kernel->push_bytes, " bytes of push constants, not ", block.size());
  if (block.empty()) return;
  vk.api.CmdPushConstants(commands_buffer, dispatch.kernel->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                          static_cast<uint32_t>(block.size()), block.data());
}

void Recording::Handles::record(const Dispatch& dispatch) {
  const DeviceInfo& info = vk.physical.info;
  for (size_t axis = 0; axis < 3; ++axis)
    if (dispatch.groups[axis] > info.max_groups[axis])
      fail(Code::unsupported, dispatch.label, ": kernel '", dispatch.kernel->name, "' needs ",
           dispatch.groups[axis], " workgroups along an axis, and device '", info.name, "' takes ",
           info.max_groups[axis], "; use a smaller batch");
  vk.api.CmdBindPipeline(commands_buffer, VK_PIPELINE_BIND_POINT_COMPUTE,
                         dispatch.kernel->pipeline);
  if (!dispatch.kernel->by_address) bind_descriptors(dispatch);
  push_constants(dispatch);
  vk.api.CmdDispatch(commands_buffer, dispatch.groups[0], dispatch.groups[1], dispatch.groups[2]);
}

void Recording::Handles::record(const Copy& copy) {
  if (copy.from.size_bytes != copy.to.size_bytes)
    fail(Code::internal, "copy of ", copy.from.size_bytes, " into ", copy.to.size_bytes, " bytes");
  const VkBufferCopy region{copy.from.offset, copy.to.offset, copy.from.size_bytes};
  vk.api.CmdCopyBuffer(commands_buffer, copy.from.handle, copy.to.handle, 1, &region);
}

namespace {

// What a command is likely to take, in bytes moved: a GPU does some ten operations in the time of one byte.
double weight_of(const Command& command) {
  double weight = 1e4;  // its launch
  for (const Binding& use : uses_of(command)) weight += static_cast<double>(use.buffer.size_bytes);
  if (const auto* dispatch = std::get_if<Dispatch>(&command)) weight += dispatch->flops / 10;
  return weight;
}

double weight_of(const CommandList& commands) {
  double total = 0;
  for (const Command& command : commands) total += weight_of(command);
  return total;
}

}  // namespace

int parts_for(const Device& device, const CommandList& commands, double seconds) {
  const double longest = device.options().longest_submit_seconds;
  if (longest <= 0 || device.info().kind == DeviceKind::cpu) return 1;
  constexpr double kSlowest = 2e10;  // bytes a second, of the slowest GPU that anyone trains on
  if (seconds <= 0) seconds = weight_of(commands) / kSlowest;
  const double parts = std::ceil(seconds / longest);
  return static_cast<int>(
      std::clamp(parts, 1.0, static_cast<double>(std::max<size_t>(commands.size(), 1))));
}

// Barriers reach over the ends of command buffers: a queue's submissions are one sequence.
void Recording::Handles::next_part() {
  if (commands_buffer) check(vk.api.EndCommandBuffer(commands_buffer), "vkEndCommandBuffer");
  commands_buffer = commands_buffer ? *(std::find(parts.begin(), parts.end(), commands_buffer) + 1)
                                    : parts.front();
  const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  check(vk.api.BeginCommandBuffer(commands_buffer, &begin), "vkBeginCommandBuffer");
}

Recording::Recording(DevicePtr device, const CommandList& commands, bool timed, int parts)
    : device_(std::move(device)), handles_(std::make_unique<Handles>(device_->vk())) {
  Handles& h = *handles_;
  h.create(commands, timed, parts);
  const VulkanApi& api = h.vk.api;
  h.next_part();
  // What earlier submissions on the queue and the host have written is visible from here on.
  h.barrier(kWork | VK_PIPELINE_STAGE_HOST_BIT, kWorkWrites | VK_ACCESS_HOST_WRITE_BIT, kWork,
            kWorkAll);
  if (h.queries) {
    api.CmdResetQueryPool(h.commands_buffer, h.queries, 0, h.query_count);
    h.timestamp(0);
  }
  HazardTracker tracker;
  const double part_weight = parts > 1 ? weight_of(commands) / parts : 0;
  double weight = 0;
  int part = 1;
  for (const Command& command : commands) {
    if (parts > 1 && part < parts && weight >= part * part_weight) {
      h.next_part();
      ++part;
    }
    weight += parts > 1 ? weight_of(command) : 0;
    const auto uses = uses_of(command);
    if (tracker.conflicts(uses)) {
      h.barrier(kWork, kWorkWrites, kWork, kWorkAll);
      tracker.clear();
      ++barriers_;
    }
    tracker.add(uses);
    std::visit([&](const auto& c) { h.record(c); }, command);
    if (!timed || !h.queries) continue;
    h.barrier(kWork, kWorkWrites, kWork, kWorkAll);
    h.timestamp(static_cast<uint32_t>(&command - commands.data()) + 1);
  }
  h.parts.resize(static_cast<size_t>(part));  // fewer, where single commands outweigh a part
  if (h.queries) h.timestamp(h.query_count - 1);
  h.barrier(kWork, kWorkWrites, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
  check(api.EndCommandBuffer(h.commands_buffer), "vkEndCommandBuffer");
}

int Recording::parts() const { return static_cast<int>(handles_->parts.size()); }

Recording::~Recording() {
  try {
    wait();
  } catch (...) {  // the device is lost: nothing runs any more
  }
}

namespace {

// Keeps the program that shares its queue from submitting at the same time.
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

void Recording::submit(Upload* after) {
  VulkanDevice& vk = handles_->vk;
  if (in_flight_) fail(Code::internal, "a recording was submitted while it was in flight");
  check(vk.api.ResetFences(vk.handle, 1, &handles_->fence), "vkResetFences");
  std::scoped_lock lock(vk.queue_mutex);
  const HostLock shared(vk);
  for (const VkCommandBuffer& part : handles_->parts) {
    VkSubmitInfo info{VK_STRUCTURE_TYPE_SUBMIT_INFO};
    info.commandBufferCount = 1;
    info.pCommandBuffers = &part;
    // The step's clock, too, begins after the copies.
    const VkPipelineStageFlags waits = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    const bool first = &part == &handles_->parts.front();
    if (first && after) {
      info.waitSemaphoreCount = 1;
      info.pWaitSemaphores = &after->handles_->done;
      info.pWaitDstStageMask = &waits;
    }
    const bool last = &part == &handles_->parts.back();
    check(vk.api.QueueSubmit(vk.queue, 1, &info, last ? handles_->fence : VkFence{}),
          "vkQueueSubmit");
    if (first && after) after->handles_->awaited = true;
  }
  in_flight_ = has_run_ = true;
}

void Recording::submit_nothing() {
  VulkanDevice& vk = handles_->vk;
  if (in_flight_) fail(Code::internal, "a recording was submitted while it was in flight");
  check(vk.api.ResetFences(vk.handle, 1, &handles_->fence), "vkResetFences");
  std::scoped_lock lock(vk.queue_mutex);
  const HostLock shared(vk);
  check(vk.api.QueueSubmit(vk.queue, 0, nullptr, handles_->fence), "vkQueueSubmit");
  in_flight_ = true;
  has_run_ = false;
}

void Recording::wait() {
  if (!in_flight_) return;
  VulkanDevice& vk = handles_->vk;
  const VkResult result = vk.api.WaitForFences(vk.handle, 1, &handles_->fence, VK_TRUE, UINT64_MAX);
  in_flight_ = false;
  check(result, "vkWaitForFences");
  read_timestamps();
}

bool Recording::done() {
  VulkanDevice& vk = handles_->vk;
  return !in_flight_ || vk.api.GetFenceStatus(vk.handle, handles_->fence) != VK_NOT_READY;
}

bool Recording::done_within(double seconds) {
  if (done()) return true;
  VulkanDevice& vk = handles_->vk;
  const auto ns = static_cast<uint64_t>(std::max(seconds, 0.0) * 1e9);
  return vk.api.WaitForFences(vk.handle, 1, &handles_->fence, VK_TRUE, ns) != VK_TIMEOUT;
}

void Recording::read_timestamps() {
  busy_seconds_ = begin_seconds_ = 0;
  if (!handles_->queries || !has_run_) return;
  VulkanDevice& vk = handles_->vk;
  std::vector<uint64_t> ticks(handles_->query_count);
  check(vk.api.GetQueryPoolResults(vk.handle, handles_->queries, 0, handles_->query_count,
                                   ticks.size() * sizeof ticks[0], ticks.data(), sizeof ticks[0],
                                   VK_QUERY_RESULT_64_BIT),
        "vkGetQueryPoolResults");
  const DeviceInfo& info = vk.physical.info;
  const double period_s = info.timestamp_period_ns * 1e-9;
  const auto seconds = [&](uint64_t from, uint64_t to) {
    return static_cast<double>(ticks_between(from, to, info.timestamp_bits)) * period_s;
  };
  begin_seconds_ = static_cast<double>(ticks.front()) * period_s;
  busy_seconds_ = seconds(ticks.front(), ticks.back());
  command_seconds_.clear();
  for (size_t i = 1; i + 1 < ticks.size(); ++i)
    command_seconds_.push_back(seconds(ticks[i - 1], ticks[i]));
}

void run_uncompared(const DevicePtr& device, const CommandList& commands) {
  Recording recording(device, commands);
  recording.submit();
  recording.wait();
}

void run_once(const DevicePtr& device, const CommandList& commands) {
  if (wants_comparison(*device, commands))
    run_compared(device, commands);
  else
    run_uncompared(device, commands);
}

}  // namespace etr::gpu
