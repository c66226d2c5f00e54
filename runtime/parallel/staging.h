// Between a device's buffers and the host: what is exchanged in a host's turn.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gpu/kernel.h"

namespace etr::parallel {

inline uint64_t bytes_of(const std::vector<gpu::Buffer>& parts) {
  uint64_t bytes = 0;
  for (const gpu::Buffer& part : parts) bytes += part.size_bytes;
  return bytes;
}

// The parts one after another in `memory`, and back.
inline void copy_out(gpu::CommandList& commands, const std::vector<gpu::Buffer>& parts,
                     const gpu::Buffer& memory) {
  uint64_t at = 0;
  for (const gpu::Buffer& part : parts)
    commands.push_back(
        gpu::Copy{part, memory.slice(std::exchange(at, at + part.size_bytes), part.size_bytes)});
}
inline void copy_back(gpu::CommandList& commands, const std::vector<gpu::Buffer>& parts,
                      const gpu::Buffer& memory) {
  uint64_t at = 0;
  for (const gpu::Buffer& part : parts)
    commands.push_back(
        gpu::Copy{memory.slice(std::exchange(at, at + part.size_bytes), part.size_bytes), part});
}

inline std::span<std::byte> bytes_at(const gpu::Buffer& memory) {
  return {memory.host, memory.size_bytes};
}
inline std::span<float> floats_at(const gpu::Buffer& memory) {
  return {reinterpret_cast<float*>(memory.host), memory.size_bytes / sizeof(float)};
}

using Work = std::shared_ptr<const std::function<void()>>;
inline gpu::HostTurn begin_of(const Work& work) { return {gpu::HostTurn::Mark::begin, work}; }
inline gpu::HostTurn end_of(const Work& work) { return {gpu::HostTurn::Mark::end, work}; }

template <typename F>
Work work_of(F&& f) {
  return std::make_shared<const std::function<void()>>(std::forward<F>(f));
}

}  // namespace etr::parallel
