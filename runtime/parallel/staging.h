// Moves data between device buffers and host memory for exchanges in host turns.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "exchange/group.h"
#include "gpu/kernel.h"
#include "ops/op.h"

namespace etr::parallel {

using Work = std::shared_ptr<const std::function<void()>>;
inline gpu::HostTurn begin_of(const Work& work) { return {gpu::HostTurn::Mark::begin, work}; }
inline gpu::HostTurn end_of(const Work& work) { return {gpu::HostTurn::Mark::end, work}; }

template <typename F>
Work work_of(F&& f) {
  return std::make_shared<const std::function<void()>>(std::forward<F>(f));
}

uint64_t bytes_of(const std::vector<gpu::Buffer>& parts);

// Copy the parts one after another to `memory`, and back.
void copy_out(gpu::CommandList& commands, const std::vector<gpu::Buffer>& parts,
              const gpu::Buffer& memory);
void copy_back(gpu::CommandList& commands, const std::vector<gpu::Buffer>& parts,
               const gpu::Buffer& memory);

// Appends the commands with numbers from `begin` to before `end`, or all of them.
void append(gpu::CommandList& to, const gpu::CommandList& from, size_t begin, size_t end);
inline void append(gpu::CommandList& to, const gpu::CommandList& from) {
  append(to, from, 0, from.size());
}

// Views of host-visible memory.
inline std::span<std::byte> bytes_at(const gpu::Buffer& memory) {
  return {memory.host, memory.size_bytes};
}
inline std::span<float> floats_at(const gpu::Buffer& memory) {
  return {reinterpret_cast<float*>(memory.host), memory.size_bytes / sizeof(float)};
}
ops::StepValues step_at(const gpu::Buffer& memory);

// Returns the factor that makes a mean of a weighted sum over ranks, whose weights are `weight`
// together. If no rank has anything to learn from, the sum is 0, and so is the mean.
inline float share_of_sum(float weight) { return weight > 0 ? 1 / weight : 1; }

// Combines the norms of the ranks' parts into the norm over all ranks of `group`. Each part lies on
// `times` ranks, and counts once.
void join_norm(exchange::Group& group, float& norm, int times = 1);

// Appends copies of `parts`, one after another, to host-visible memory, `work` on these, and copies
// back. The device waits for it. `memory` allocates the host-visible memory and must outlive the
// commands.
//
// This cannot deadlock. A device's host turns run in the order of their begins, on a thread that
// does nothing else, so a rank's exchanges form one sequence. All ranks build it from the same
// plan, woven in the same way, so they have the same sequence, whichever groups it uses. Take the
// first exchange that has not ended: all of its ranks are on their way to it, because each has
// finished the earlier ones.
void emit_round_trip(gpu::CommandList& commands, gpu::Allocator& memory,
                     const std::vector<gpu::Buffer>& parts,
                     std::function<void(std::span<float>)> work);

}  // namespace etr::parallel
