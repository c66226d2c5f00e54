// A tensor's way to the host and back within a step, where a host turn does something with it.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "gpu/kernel.h"

namespace etr::parallel {

// Appends copies of `parts` to memory that the host sees, `work` on these, and copies back: the device waits. `memory` allocates
// such memory, and outlives the commands.
//
// Why this cannot deadlock. The host turns of a device come one after another, in the order of their begins, on a thread that does
// nothing else; so a rank's exchanges are one sequence. All ranks make it from the same plan, woven in the same way, so it is the
// same sequence on all of them, whichever groups it uses: the first exchange that has not ended anywhere has all of its ranks on
// the way to it, because each of them is done with those before.
void emit_round_trip(gpu::CommandList& commands, gpu::Allocator& memory,
                     std::span<const gpu::Buffer> parts,
                     const std::function<void(std::span<const gpu::Buffer>)>& work);

// Of a buffer that the host sees.
inline std::span<float> floats_of(const gpu::Buffer& buffer) {
  return {reinterpret_cast<float*>(buffer.host), buffer.size_bytes / sizeof(float)};
}

}  // namespace etr::parallel
