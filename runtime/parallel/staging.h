// Between a device's buffers and the host: what is exchanged in a host turn.
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

// The parts one after another in `memory`, and back.
void copy_out(gpu::CommandList& commands, const std::vector<gpu::Buffer>& parts,
              const gpu::Buffer& memory);
void copy_back(gpu::CommandList& commands, const std::vector<gpu::Buffer>& parts,
               const gpu::Buffer& memory);

// Appends those of the commands from number `begin` to before `end`, or all of them.
void append(gpu::CommandList& to, const gpu::CommandList& from, size_t begin, size_t end);
inline void append(gpu::CommandList& to, const gpu::CommandList& from) {
  append(to, from, 0, from.size());
}

// What lies in memory that the host sees.
inline std::span<std::byte> bytes_at(const gpu::Buffer& memory) {
  return {memory.host, memory.size_bytes};
}
inline std::span<float> floats_at(const gpu::Buffer& memory) {
  return {reinterpret_cast<float*>(memory.host), memory.size_bytes / sizeof(float)};
}
ops::StepValues step_at(const gpu::Buffer& memory);

// Turns the norm of this rank's part into the norm over all ranks of `group`. Each part is on `times` of them, and counts once.
void join_norm(exchange::Group& group, float& norm, int times = 1);

// Appends copies of `parts`, one after another, to memory that the host sees, `work` on these, and copies back: the device waits.
// `memory` allocates such memory, and outlives the commands.
//
// Why this cannot deadlock. The host turns of a device come one after another, in the order of their begins, on a thread that does
// nothing else; so a rank's exchanges are one sequence. All ranks make it from the same plan, woven in the same way, so it is the
// same sequence on all of them, whichever groups it uses: the first exchange that has not ended anywhere has all of its ranks on
// the way to it, because each of them is done with those before.
void emit_round_trip(gpu::CommandList& commands, gpu::Allocator& memory,
                     const std::vector<gpu::Buffer>& parts,
                     std::function<void(std::span<float>)> work);

}  // namespace etr::parallel
