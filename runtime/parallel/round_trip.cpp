#include "parallel/round_trip.h"

#include <vector>

namespace etr::parallel {

void emit_round_trip(gpu::CommandList& commands, gpu::Allocator& memory,
                     std::span<const gpu::Buffer> parts,
                     const std::function<void(std::span<const gpu::Buffer>)>& work) {
  std::vector<gpu::Buffer> there;
  for (const gpu::Buffer& part : parts) {
    there.push_back(memory.allocate(part.size_bytes));
    commands.push_back(gpu::Copy{part, there.back()});
  }
  const auto turn = std::make_shared<const std::function<void()>>([there, work] { work(there); });
  commands.push_back(gpu::HostTurn{gpu::HostTurn::Mark::begin, turn});
  commands.push_back(gpu::HostTurn{gpu::HostTurn::Mark::end, turn});
  for (size_t i = 0; i < parts.size(); ++i) commands.push_back(gpu::Copy{there[i], parts[i]});
}

}  // namespace etr::parallel
