#include "parallel/buckets.h"

#include <algorithm>
#include <utility>

#include "parallel/staging.h"

namespace etr::parallel {
namespace {

bool writes(const gpu::Command& command, const gpu::Buffer& buffer) {
  if (const auto* dispatch = std::get_if<gpu::Dispatch>(&command))
    return std::any_of(
        dispatch->bindings.begin(), dispatch->bindings.end(), [&](const gpu::Binding& binding) {
          return binding.access != gpu::Access::read && gpu::overlap(binding.buffer, buffer);
        });
  if (const auto* copy = std::get_if<gpu::Copy>(&command)) return gpu::overlap(copy->to, buffer);
  const auto* fill = std::get_if<gpu::Fill>(&command);
  return fill && gpu::overlap(fill->to, buffer);
}

struct Gradient {
  Bucket::Range range;
  size_t final_after;
};

// Includes the alignment gap after each parameter.
std::vector<Gradient> gradients_of(const gpu::CommandList& commands,
                                   const graph::ParameterStore& store,
                                   const GradientOf& gradient_of) {
  std::vector<Gradient> out;
  const auto& parameters = store.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const uint32_t begin = parameters[i].begin;
    const uint32_t end = i + 1 < parameters.size() ? parameters[i + 1].begin : store.count();
    const gpu::Buffer buffer =
        gradient_of
            ? gradient_of(parameters[i])
            : store.gradients().slice(uint64_t{begin} * 4, uint64_t{parameters[i].count} * 4);
    out.push_back({{begin, end - begin}, buffer ? final_after(commands, buffer) : 0});
  }
  return out;
}

void close(Bucket& bucket) {
  auto& ranges = bucket.ranges;
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<Bucket::Range> joined;
  for (const Bucket::Range& range : ranges)
    if (!joined.empty() && joined.back().begin + joined.back().count == range.begin)
      joined.back().count += range.count;
    else
      joined.push_back(range);
  ranges = std::move(joined);
}

}  // namespace

uint64_t Bucket::count() const {
  uint64_t count = 0;
  for (const Range& range : ranges) count += range.count;
  return count;
}

std::vector<gpu::Buffer> parts_of(const Bucket& bucket, const graph::ParameterStore& store) {
  std::vector<gpu::Buffer> out;
  for (const Bucket::Range& range : bucket.ranges)
    out.push_back(store.gradients().slice(uint64_t{range.begin} * 4, uint64_t{range.count} * 4));
  return out;
}

size_t final_after(const gpu::CommandList& commands, const gpu::Buffer& buffer) {
  const auto last =
      std::find_if(commands.rbegin(), commands.rend(),
                   [&](const gpu::Command& command) { return writes(command, buffer); });
  return static_cast<size_t>(commands.rend() - last);
}

std::vector<Bucket> make_buckets(const gpu::CommandList& commands,
                                 const graph::ParameterStore& store, uint64_t bytes,
                                 const GradientOf& gradient_of) {
  std::vector<Gradient> gradients = gradients_of(commands, store, gradient_of);
  std::stable_sort(gradients.begin(), gradients.end(), [](const Gradient& a, const Gradient& b) {
    return a.final_after < b.final_after;
  });
  std::vector<Bucket> out;
  bool full = true;
  for (const Gradient& gradient : gradients) {
    if (full) out.emplace_back();
    Bucket& bucket = out.back();
    bucket.ranges.push_back(gradient.range);
    bucket.final_after = gradient.final_after;
    full = bucket.count() * 4 >= bytes;
  }
  for (Bucket& bucket : out) close(bucket);
  return out;
}

void weave(gpu::CommandList& out, const gpu::CommandList& commands, size_t begin,
           const std::vector<Bucket>& buckets, const std::function<void(const Bucket&)>& emit) {
  size_t done = begin;
  for (const Bucket& bucket : buckets) {
    const size_t end = std::max(done, bucket.final_after);
    append(out, commands, std::exchange(done, end), end);
    emit(bucket);
  }
  append(out, commands, done, commands.size());
}

}  // namespace etr::parallel
