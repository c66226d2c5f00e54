// Records commands into command buffers: barriers, descriptors, and the split into submissions.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "gpu/vulkan_kernel.h"
#include "gpu/vulkan_recording.h"

namespace etr::gpu {
namespace {

// Tracks the ranges that commands have read and written since the last barrier.
class HazardTracker {
 public:
  // Returns whether `uses` conflicts with earlier commands: read after write, write after read or
  // write.
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
  if (const auto* fill = std::get_if<Fill>(&command)) return {{fill->to, Access::write}};
  return {};
}

int turns_in(const CommandList& commands) {
  return static_cast<int>(std::count_if(commands.begin(), commands.end(), [](const Command& c) {
    return std::holds_alternative<HostTurn>(c);
  }));
}

constexpr VkPipelineStageFlags kWork =
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkAccessFlags kWorkWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags kWorkAll =
    kWorkWrites | VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;

}  // namespace

Recording::Handles::~Handles() {
  if (vk.abandoned) return;
  for (const Segment& segment : segments)
    if (segment.fence) vk.api.DestroyFence(vk.handle, segment.fence, nullptr);
  if (queries) vk.api.DestroyQueryPool(vk.handle, queries, nullptr);
  if (descriptors) vk.api.DestroyDescriptorPool(vk.handle, descriptors, nullptr);
  if (pool) vk.api.DestroyCommandPool(vk.handle, pool, nullptr);
}

void Recording::Handles::barrier(VkPipelineStageFlags from, VkAccessFlags writes,
                                 VkPipelineStageFlags to, VkAccessFlags then) {
  const VkMemoryBarrier memory{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, writes, then};
  vk.api.CmdPipelineBarrier(commands_buffer, from, to, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

void Recording::Handles::timestamp() {
  vk.api.CmdWriteTimestamp(commands_buffer, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries,
                           next_query++);
}

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
  vk.check(vk.api.CreateDescriptorPool(vk.handle, &info, nullptr, &descriptors),
           "vkCreateDescriptorPool");
}

void Recording::Handles::create(const CommandList& commands, bool timed, int part_count) {
  VkCommandPoolCreateInfo pool_info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  pool_info.queueFamilyIndex = vk.physical.queue_family;
  vk.check(vk.api.CreateCommandPool(vk.handle, &pool_info, nullptr, &pool), "vkCreateCommandPool");
  unused.resize(static_cast<size_t>(part_count));
  VkCommandBufferAllocateInfo buffer_info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr,
                                          pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                          static_cast<uint32_t>(part_count)};
  vk.check(vk.api.AllocateCommandBuffers(vk.handle, &buffer_info, unused.data()),
           "vkAllocateCommandBuffers");
  if (vk.physical.info.timestamp_period_ns > 0) {
    VkQueryPoolCreateInfo query_info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
    query_info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    const auto cuts = static_cast<uint32_t>(turns_in(commands));
    query_count = timed ? static_cast<uint32_t>(commands.size()) + 2 : 2 * (cuts + 1);
    query_info.queryCount = query_count;
    vk.check(vk.api.CreateQueryPool(vk.handle, &query_info, nullptr, &queries),
             "vkCreateQueryPool");
  }
  create_descriptor_pool(commands);
}

void Recording::Handles::bind_descriptors(const Dispatch& dispatch) {
  VkDescriptorSetAllocateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr,
                                   descriptors, 1, &dispatch.kernel->set_layout};
  VkDescriptorSet set = VK_NULL_HANDLE;
  vk.check(vk.api.AllocateDescriptorSets(vk.handle, &info, &set), "vkAllocateDescriptorSets");
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
           info.max_groups[axis], "; use a smaller batch, or rows with fewer elements");
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

void Recording::Handles::record(const Fill& fill) {
  vk.api.CmdFillBuffer(commands_buffer, fill.to.handle, fill.to.offset, fill.to.size_bytes,
                       fill.word);
}

namespace {

// Estimates a command's cost in bytes moved: a GPU does about ten operations in the time in which
// it moves a byte.
double weight_of(const Command& command) {
  double weight = 1e4;  // launch cost
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
  const bool watched = device.info().kind != DeviceKind::cpu || device.options().lowered.watchdog;
  if (longest <= 0 || !watched) return 1;
  constexpr double kSlowest = 2e10;  // bytes per second of the slowest GPU used for training
  if (seconds <= 0) seconds = weight_of(commands) / kSlowest;
  const double parts = std::ceil(seconds / longest);
  return static_cast<int>(
      std::clamp(parts, 1.0, static_cast<double>(std::max<size_t>(commands.size(), 1))));
}

// Barriers also apply across command buffers: submissions to a queue are one sequence.
void Recording::Handles::next_part() {
  if (commands_buffer) vk.check(vk.api.EndCommandBuffer(commands_buffer), "vkEndCommandBuffer");
  commands_buffer = unused.back();
  unused.pop_back();
  segments.back().parts.push_back(commands_buffer);
  const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  vk.check(vk.api.BeginCommandBuffer(commands_buffer, &begin), "vkBeginCommandBuffer");
}

void Recording::Handles::begin_segment() {
  Segment& segment = segments.emplace_back();
  const VkFenceCreateInfo fence_info{VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  vk.check(vk.api.CreateFence(vk.handle, &fence_info, nullptr, &segment.fence), "vkCreateFence");
  next_part();
  // Makes writes by earlier submissions on the queue and by the host visible.
  barrier(kWork | VK_PIPELINE_STAGE_HOST_BIT, kWorkWrites | VK_ACCESS_HOST_WRITE_BIT, kWork,
          kWorkAll);
  if (!queries) return;
  if (segments.size() == 1) vk.api.CmdResetQueryPool(commands_buffer, queries, 0, query_count);
  timestamp();
}

void Recording::Handles::end_segment() {
  if (queries) timestamp();
  barrier(kWork, kWorkWrites, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
}

void Recording::Handles::cut(const HostTurn& turn) {
  if (turn.mark == HostTurn::Mark::begin) segments.back().begun.push_back(turn.work);
  const bool cut_already = turn.mark == HostTurn::Mark::end && segments.back().empty;
  if (!cut_already) {
    end_segment();
    begin_segment();
  }
  if (turn.mark == HostTurn::Mark::end) segments.back().awaited.push_back(turn.work);
}

Recording::Recording(DevicePtr device, const CommandList& commands, bool timed, int parts)
    : device_(std::move(device)), handles_(std::make_unique<Handles>(device_->vk())) {
  Handles& h = *handles_;
  const int turns = turns_in(commands);
  if (timed && turns > 0) fail(Code::internal, "a recording with host turns is not timed");
  h.create(commands, timed, parts + turns);
  h.begin_segment();
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
    const bool turn = std::holds_alternative<HostTurn>(command);
    if (turn)
      tracker.clear();  // a segment begins with a barrier
    else
      h.segments.back().empty = false;
    std::visit([&](const auto& c) { h.record(c); }, command);
    if (!timed || !h.queries) continue;
    h.barrier(kWork, kWorkWrites, kWork, kWorkAll);
    h.timestamp();
  }
  h.end_segment();
  h.vk.check(h.vk.api.EndCommandBuffer(h.commands_buffer), "vkEndCommandBuffer");
}

// Does not count the parts that host turns add.
int Recording::parts() const {
  size_t parts = 0;
  for (const Segment& segment : handles_->segments) parts += segment.parts.size();
  return static_cast<int>(parts - (handles_->segments.size() - 1));
}

bool Recording::has_host_turns() const { return handles_->segments.size() > 1; }

}  // namespace etr::gpu
