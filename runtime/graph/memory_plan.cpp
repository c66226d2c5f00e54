#include "graph/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace etr::graph {
namespace {

constexpr uint64_t kAlignment = 256;                // enough for binding on every device
constexpr uint64_t kHeapBytes = uint64_t{1} << 30;  // size of one heap, unless a tensor is larger

template <typename Command, typename F>
void for_each_buffer(Command& command, F&& f) {
  if (auto* dispatch = std::get_if<gpu::Dispatch>(&command)) {
    for (auto& binding : dispatch->bindings) f(binding.buffer);
  } else if (auto* copy = std::get_if<gpu::Copy>(&command)) {
    f(copy->from);
    f(copy->to);
  } else if (auto* fill = std::get_if<gpu::Fill>(&command)) {
    f(fill->to);
  }
}

// A place in one of the heaps.
struct Placed {
  uint64_t offset, size;
  int64_t first, last;
};

// Returns the lowest offset at which `size` bytes are free from command `first` to `last`. `heap`
// is sorted by offset.
uint64_t lowest_free(const std::vector<Placed>& heap, uint64_t size, int64_t first, int64_t last) {
  uint64_t offset = 0;
  for (const Placed& other : heap) {
    if (other.last < first || last < other.first) continue;
    if (other.offset >= offset + size) break;
    offset = std::max(offset, other.offset + other.size);
  }
  return offset;
}

}  // namespace

gpu::Buffer MemoryPlan::allocate(uint64_t size_bytes) {
  gpu::check_bindable(*device_, size_bytes);
  const uint64_t size = (std::max<uint64_t>(size_bytes, 4) + 3) / 4 * 4;
  blocks_.emplace_back().size = size;
  gpu::Buffer buffer;
  buffer.size_bytes = size;
  buffer.planned = static_cast<uint32_t>(blocks_.size());
  return buffer;
}

MemoryPlan::Block& MemoryPlan::block_of(uint32_t planned) {
  while (blocks_[planned - 1].same_as) planned = blocks_[planned - 1].same_as;
  return blocks_[planned - 1];
}
const MemoryPlan::Block& MemoryPlan::block_of(uint32_t planned) const {
  return const_cast<MemoryPlan*>(this)->block_of(planned);
}

void MemoryPlan::written_before(const gpu::Buffer& buffer) {
  if (buffer.planned) block_of(buffer.planned).kept_before = true;
}
void MemoryPlan::read_after(const gpu::Buffer& buffer) {
  if (buffer.planned) block_of(buffer.planned).kept_after = true;
}

uint64_t MemoryPlan::asked_bytes() const {
  uint64_t total = 0;
  for (const Block& block : blocks_) total += block.size;
  return total;
}

bool MemoryPlan::is_whole(const gpu::Buffer& buffer) const {
  return buffer.offset == 0 && buffer.size_bytes == block_of(buffer.planned).size;
}

bool MemoryPlan::is_kept(const gpu::Buffer& buffer) const {
  const Block& block = block_of(buffer.planned);
  return block.kept_before || block.kept_after;
}

void MemoryPlan::find_lifetimes(const gpu::CommandList& commands) {
  for (Block& block : blocks_) block.first = kNever, block.last = -1;
  for (size_t i = 0; i < commands.size(); ++i) {
    const auto now = static_cast<int64_t>(i);
    for_each_buffer(commands[i], [&](const gpu::Buffer& buffer) {
      if (!buffer.planned) return;
      Block& block = block_of(buffer.planned);
      block.first = std::min(block.first, now);
      block.last = std::max(block.last, now);
    });
  }
  for (Block& block : blocks_) {
    if (block.kept_before && block.last >= 0) block.first = -1;
    if (block.kept_before && block.kept_after) block.first = -1;
    if (block.kept_after) block.last = static_cast<int64_t>(commands.size());
  }
}

namespace {

template <typename F>
void for_each_written(const gpu::Command& command, F&& f) {
  if (const auto* dispatch = std::get_if<gpu::Dispatch>(&command)) {
    for (const auto& binding : dispatch->bindings)
      if (binding.access != gpu::Access::read) f(binding.buffer);
  } else if (const auto* copy = std::get_if<gpu::Copy>(&command)) {
    f(copy->to);
  } else if (const auto* fill = std::get_if<gpu::Fill>(&command)) {
    f(fill->to);
  }
}

}  // namespace

// A copy of a whole buffer into one that was not written before needs no second buffer if neither
// is written while the other is still read.
void MemoryPlan::join_copies(gpu::CommandList& commands) {
  find_lifetimes(commands);
  std::vector<std::vector<int64_t>> writes(blocks_.size());  // by block, in order
  for (size_t i = 0; i < commands.size(); ++i)
    for_each_written(commands[i], [&](const gpu::Buffer& buffer) {
      if (buffer.planned) writes[buffer.planned - 1].push_back(static_cast<int64_t>(i));
    });
  const auto of = [&](const Block& block) -> std::vector<int64_t>& {
    return writes[static_cast<size_t>(&block - blocks_.data())];
  };
  const auto first_write_after = [&](const Block& block, int64_t now) {
    const auto at = std::upper_bound(of(block).begin(), of(block).end(), now);
    return at == of(block).end() ? kNever : *at;
  };
  std::vector<bool> dropped(commands.size());
  for (size_t i = 0; i < commands.size(); ++i) {
    const auto* copy = std::get_if<gpu::Copy>(&commands[i]);
    if (!copy || !copy->from.planned || !copy->to.planned) continue;
    Block &from = block_of(copy->from.planned), &to = block_of(copy->to.planned);
    const auto now = static_cast<int64_t>(i);
    const bool whole = copy->from.size_bytes == from.size && copy->to.size_bytes == to.size;
    const bool apart =
        first_write_after(from, now) > to.last && first_write_after(to, now) > from.last;
    if (!whole || &from == &to || !apart || to.first != now || from.kept_before) continue;
    from.last = std::max(from.last, to.last);
    from.kept_after = from.kept_after || to.kept_after;
    std::vector<int64_t> both;
    std::merge(of(from).begin(), of(from).end(), of(to).begin(), of(to).end(),
               std::back_inserter(both));
    of(from) = std::move(both);
    to.same_as = static_cast<uint32_t>(&from - blocks_.data()) + 1;
    dropped[i] = true;
  }
  gpu::CommandList kept;
  for (size_t i = 0; i < commands.size(); ++i)
    if (!dropped[i]) kept.push_back(std::move(commands[i]));
  commands = std::move(kept);
  for (gpu::Command& command : commands)
    for_each_buffer(command, [&](gpu::Buffer& buffer) {
      if (buffer.planned)
        buffer.planned = static_cast<uint32_t>(&block_of(buffer.planned) - blocks_.data()) + 1;
    });
}

void MemoryPlan::place(gpu::CommandList& commands, gpu::Arena& arena) {
  join_copies(commands);
  find_lifetimes(commands);
  // Place the largest first: small ones fit between them.
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < blocks_.size(); ++i)
    if (!blocks_[i].same_as && blocks_[i].first <= blocks_[i].last) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return blocks_[a].size > blocks_[b].size; });
  std::vector<std::vector<Placed>> heaps;
  std::vector<uint64_t> sizes;
  std::vector<std::pair<size_t, uint64_t>> where(blocks_.size());  // heap and offset
  for (const uint32_t i : order) {
    const Block& block = blocks_[i];
    const uint64_t size = (block.size + kAlignment - 1) / kAlignment * kAlignment;
    size_t heap = 0;
    uint64_t offset = 0;
    for (; heap < heaps.size(); ++heap) {
      offset = lowest_free(heaps[heap], size, block.first, block.last);
      if (offset + size <= std::max(kHeapBytes, sizes[heap])) break;
    }
    if (heap == heaps.size()) heaps.emplace_back(), sizes.push_back(0), offset = 0;
    const Placed placed{offset, size, block.first, block.last};
    const auto at =
        std::upper_bound(heaps[heap].begin(), heaps[heap].end(), placed,
                         [](const Placed& a, const Placed& b) { return a.offset < b.offset; });
    heaps[heap].insert(at, placed);
    sizes[heap] = std::max(sizes[heap], offset + size);
    where[i] = {heap, offset};
  }
  std::vector<gpu::Buffer> memory;
  for (const uint64_t size : sizes) memory.push_back(arena.allocate_whole(size));
  for (const uint32_t i : order)
    blocks_[i].real = memory[where[i].first].slice(where[i].second, blocks_[i].size);
  for (gpu::Command& command : commands)
    for_each_buffer(command, [&](gpu::Buffer& buffer) { buffer = real(buffer); });
}

gpu::Buffer MemoryPlan::real(const gpu::Buffer& buffer) const {
  if (!buffer.planned) return buffer;
  const Block& block = block_of(buffer.planned);
  return block.real ? block.real.slice(buffer.offset, buffer.size_bytes) : gpu::Buffer{};
}

}  // namespace etr::graph
