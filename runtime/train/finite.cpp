#include "train/finite.h"

#include <algorithm>

#include "core/error.h"
#include "gpu/run_once.h"
#include "graph/parameters.h"

namespace etr::train {
namespace {

struct Push {
  uint32_t count, place;
};

// Zeroes what the commands write outside of `kept`.
gpu::CommandList clearing(const gpu::CommandList& commands, const std::vector<gpu::Buffer>& kept) {
  gpu::CommandList out;
  for (const gpu::Command& command : commands) {
    const auto* dispatch = std::get_if<gpu::Dispatch>(&command);
    if (!dispatch) continue;
    for (const gpu::Binding& binding : dispatch->bindings) {
      const auto is_here = [&](const gpu::Buffer& other) { return overlap(binding.buffer, other); };
      if (binding.access != gpu::Access::read && std::none_of(kept.begin(), kept.end(), is_here))
        out.push_back(gpu::Fill{binding.buffer, 0});
    }
  }
  return out;
}

}  // namespace

std::string first_not_finite(gpu::Kernels& kernels, const gpu::CommandList& input_commands,
                             const std::vector<Named>& given, const std::vector<gpu::Buffer>& kept,
                             const gpu::CommandList& commands) {
  gpu::Arena arena(kernels.device(), gpu::MemoryUse::device);
  const auto places = static_cast<int64_t>(given.size() + commands.size());
  const ops::DeviceTensor found{arena.allocate(static_cast<uint64_t>(places) * 4), {places}};
  gpu::CommandList checked = clearing(commands, kept);
  checked.push_back(gpu::Fill{found.buffer, 0});
  checked.insert(checked.end(), input_commands.begin(), input_commands.end());
  ops::Emitter emit(kernels, arena, checked);
  std::vector<std::string> names;
  const auto look = [&](const gpu::Buffer& buffer) {
    const auto count = static_cast<uint32_t>(buffer.size_bytes / 4);
    const Push push{count, static_cast<uint32_t>(names.size() - 1)};
    emit.for_each("find_not_finite", {{buffer, gpu::Access::read}, ops::updates(found)}, push,
                  count);
  };
  for (const Named& one : given) {
    names.push_back(one.name);
    look(one.buffer);
  }
  for (const gpu::Command& command : commands) {
    if (std::holds_alternative<gpu::HostTurn>(command)) continue;  // other ranks do not take part
    checked.push_back(command);
    const auto* dispatch = std::get_if<gpu::Dispatch>(&command);
    names.push_back(dispatch ? cat("'", dispatch->label, "', in its kernel ",
                                   gpu::kernel_name(*dispatch->kernel))
                             : "a copy");
    if (!dispatch) continue;
    for (const gpu::Binding& binding : dispatch->bindings)
      if (binding.access != gpu::Access::read) look(binding.buffer);
  }
  gpu::run_once(kernels.device(), checked);
  const Tensor flags = graph::download(kernels.device(), found);
  for (size_t i = 0; i < names.size(); ++i)
    if (flags.view<float>()[i] != 0) return names[i];
  return "";
}

}  // namespace etr::train
