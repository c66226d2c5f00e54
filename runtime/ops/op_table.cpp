#include <bit>
#include <numeric>

#include "core/error.h"
#include "core/table.h"
#include "ops/op.h"

namespace etr::ops {

#define ETR_OP(name) extern const OpSpec name##_op;
#include "ops/op_list.inc"
#undef ETR_OP

std::span<const OpSpec* const> op_table() {
  static constexpr const OpSpec* kTable[] = {
#define ETR_OP(name) &name##_op,
#include "ops/op_list.inc"
#undef ETR_OP
  };
  return kTable;
}

const OpSpec& find_op(const std::string& name) { return find_in_table(op_table(), "op", name); }

void require_rank(const char* op, const char* input, const Shape& shape, size_t rank,
                  const char* expected) {
  if (shape.size() != rank)
    fail(Code::invalid_argument, op, ": ", input, " must be ", expected, ", not ",
         shape_text(shape));
}

void require_labels(const char* op, const std::vector<Shape>& in) {
  if (in[0].size() < 2)
    fail(Code::invalid_argument, op, ": logits must be [N, ..., classes], not ", shape_text(in[0]));
  const Shape rows(in[0].begin(), in[0].end() - 1);
  for (size_t i = 1; i < in.size(); ++i)
    if (in[i] != rows)
      fail(Code::invalid_argument, op, ": ", i == 1 ? "labels" : "weights", " must be ",
           shape_text(rows), ", not ", shape_text(in[i]));
}

DeviceTensor Emitter::scratch(const Shape& shape) {
  return {memory_.allocate(static_cast<uint64_t>(element_count(shape)) * 4), shape};
}

uint32_t channel_lanes(const gpu::Device& device) {
  return device.family() == gpu::KernelFamily::cpu ? device.info().subgroup_size : 32;
}

uint32_t lanes_over(const gpu::Device& device, uint32_t channels, uint32_t lanes) {
  const gpu::DeviceInfo& info = device.info();
  while (gpu::div_up(channels, lanes) > info.max_groups[0] && 2 * lanes <= info.max_workgroup)
    lanes *= 2;
  return lanes;
}

uint32_t rows_side_by_side(const gpu::Device& device, uint32_t channels) {
  const uint32_t all_lanes = 2 * channel_lanes(device);
  // In wide rows, lanes that are off hardly count.
  const uint32_t columns = channels >= 16 * all_lanes ? 2 : all_lanes;
  return columns / std::gcd(columns, channels);
}

DeviceTensor samples_of(const DeviceTensor& x, uint32_t first, uint32_t count) {
  if (!x || x.shape[0] == count) return x;
  DeviceTensor out = x;
  const uint64_t bytes = 4 * static_cast<uint64_t>(element_count(x.shape) / x.shape[0]);
  out.shape[0] = count;
  out.buffer = x.buffer.slice(first * bytes, count * bytes);
  return out;
}

uint32_t sample_run(uint32_t samples, uint32_t groups) {
  constexpr uint32_t kAligned = 64;  // elements: the largest alignment that Vulkan allows
  if (uint64_t{samples} * groups <= kMostGroups) return samples;
  const uint32_t run = kMostGroups / groups / kAligned * kAligned;
  if (run == 0)
    fail(Code::unsupported, "attention with ", groups, " heads takes batches of at most ",
         kMostGroups / groups, " samples, not of ", samples, ": use smaller batches, or at most ",
         kMostGroups / kAligned, " heads");
  return run;
}

// A CPU core prefers long walks. A GPU hides memory latency behind a hundred thousand invocations.
uint32_t row_slices(const gpu::Device& device, uint32_t rows, uint32_t channels) {
  constexpr uint32_t kMostRows = 32768;  // of a slice: a driver may end longer loops
  if (device.family() == gpu::KernelFamily::cpu)
    return std::max(std::clamp(rows / 64, 1u, 64u), gpu::div_up(rows, kMostRows));
  constexpr uint32_t kGroups = 8192;  // workgroups in total
  const uint32_t most = std::max(kGroups / gpu::div_up(channels, channel_lanes(device)), 1u);
  return std::clamp(rows / 8, 1u, most);
}

uint32_t sum_slices(const gpu::Device& device, uint32_t rows, uint32_t channels) {
  const uint32_t slices = row_slices(device, rows, channels);
  return device.family() == gpu::KernelFamily::cpu ? slices : gpu::div_up(slices, 4);
}

// A subgroup reads whole cache lines of wide rows, and several rows if they are narrow.
SumTile sum_tile(const gpu::Device& device, uint32_t channels) {
  if (device.family() == gpu::KernelFamily::cpu)
    return {lanes_over(device, channels, channel_lanes(device)), 1};
  const uint32_t lanes = lanes_over(device, channels, std::clamp(std::bit_ceil(channels), 2u, 32u));
  return {lanes, std::max(256 / lanes, 1u)};
}

uint32_t tile_slices(const gpu::Device& device, uint32_t rows, uint32_t channels) {
  if (device.family() == gpu::KernelFamily::cpu) return sum_slices(device, rows, channels);
  constexpr uint32_t kGroups = 2048;  // workgroups in total, some more than run at once
  const SumTile tile = sum_tile(device, channels);
  const uint32_t most = std::max(kGroups / gpu::div_up(channels, tile.channels), 1u);
  const uint32_t at_once = 8 * tile.streams;  // rows that a workgroup reads per iteration
  const uint32_t iterations = gpu::div_up(gpu::div_up(rows, most), at_once);
  return std::max(gpu::div_up(rows, iterations * at_once), 1u);
}

void Emitter::require_iterations(uint64_t iterations, const std::string& instead) const {
  const gpu::DeviceInfo& info = device()->info();
  if (info.max_iterations == 0 || iterations <= info.max_iterations) return;
  fail(Code::unsupported, label_, ": with these sizes, a kernel takes ", iterations,
       " iterations, and the driver of '", info.name, "' (", info.driver, ") ends loops after ",
       info.max_iterations, ": install Mesa 25 or later, or ", instead);
}

uint32_t Emitter::slices_within(uint32_t slices, uint32_t rows, uint64_t each) const {
  const uint32_t limit = device()->info().max_iterations;
  if (limit == 0) return slices;
  const uint64_t at_once = std::max<uint64_t>(limit / each, 1);
  slices = std::max(slices, gpu::div_up(rows, at_once));
  require_iterations(gpu::div_up(rows, slices) * each);
  return slices;
}

uint32_t Emitter::row_lanes(uint32_t length) const {
  if (device()->family() == gpu::KernelFamily::cpu) return channel_lanes(*device());
  return std::clamp(std::bit_ceil(length / 4 + 1), 32u, 128u);
}

}  // namespace etr::ops
