#include "parallel/staging.h"

#include <cmath>
#include <cstring>

namespace etr::parallel {

uint64_t bytes_of(const std::vector<gpu::Buffer>& parts) {
  uint64_t bytes = 0;
  for (const gpu::Buffer& part : parts) bytes += part.size_bytes;
  return bytes;
}

void copy_out(gpu::CommandList& commands, const std::vector<gpu::Buffer>& parts,
              const gpu::Buffer& memory) {
  uint64_t at = 0;
  for (const gpu::Buffer& part : parts)
    commands.push_back(
        gpu::Copy{part, memory.slice(std::exchange(at, at + part.size_bytes), part.size_bytes)});
}

void copy_back(gpu::CommandList& commands, const std::vector<gpu::Buffer>& parts,
               const gpu::Buffer& memory) {
  uint64_t at = 0;
  for (const gpu::Buffer& part : parts)
    commands.push_back(
        gpu::Copy{memory.slice(std::exchange(at, at + part.size_bytes), part.size_bytes), part});
}

void append(gpu::CommandList& to, const gpu::CommandList& from, size_t begin, size_t end) {
  to.insert(to.end(), from.begin() + static_cast<ptrdiff_t>(begin),
            from.begin() + static_cast<ptrdiff_t>(end));
}

ops::StepValues step_at(const gpu::Buffer& memory) {
  ops::StepValues values;
  std::memcpy(&values, memory.host, sizeof values);
  return values;
}

void join_norm(exchange::Group& group, float& norm, int times) {
  double square = std::pow(static_cast<double>(norm), 2);
  group.all_reduce(std::span(&square, 1));
  norm = static_cast<float>(std::sqrt(square / times));
}

void emit_round_trip(gpu::CommandList& commands, gpu::Allocator& memory,
                     const std::vector<gpu::Buffer>& parts,
                     std::function<void(std::span<float>)> work) {
  const gpu::Buffer there = memory.allocate(bytes_of(parts));
  const Work turn = work_of([there, work = std::move(work)] { work(floats_at(there)); });
  copy_out(commands, parts, there);
  commands.push_back(begin_of(turn));
  commands.push_back(end_of(turn));
  copy_back(commands, parts, there);
}

}  // namespace etr::parallel
