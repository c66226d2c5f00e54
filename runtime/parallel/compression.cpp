#include "parallel/compression.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "gpu/run_once.h"

namespace etr::parallel {

namespace {

// Scalars of a dispatch: every device can bind that many.
constexpr uint32_t kMostBound = uint32_t{1} << 24;
// Bytes: the largest alignment that devices require of bindings.
constexpr uint64_t kAlignment = 256;

// A part of a bucket and its place on the wire.
struct Part {
  Bucket::Range range;
  uint64_t at;  // in bytes
};

uint64_t wire_bytes(uint32_t count) {
  return (uint64_t{count} * 2 + kAlignment - 1) / kAlignment * kAlignment;
}

std::vector<Part> parts_of(const Bucket& bucket) {
  std::vector<Part> out;
  uint64_t at = 0;
  for (const Bucket::Range& range : bucket.ranges)
    for (uint32_t done = 0; done < range.count; done += kMostBound) {
      const Bucket::Range part{range.begin + done, std::min(range.count - done, kMostBound)};
      out.push_back({part, at});
      at += wire_bytes(part.count);
    }
  return out;
}

gpu::Buffer scalars(const gpu::Buffer& buffer, const Bucket::Range& range) {
  return buffer.slice(uint64_t{range.begin} * 4, uint64_t{range.count} * 4);
}

struct PackPush {
  uint32_t count, feedback;
  float ranks, most;
};

// Returns the most that a rank may send, so that the sum of all ranks is finite. Sums are rounded
// to the format after each addition. The number has as few bits as let the format represent its
// multiples, so rounding never leads beyond them, whatever the order.
float most_of(Compression format, uint32_t ranks) {
  const bool bf16 = format == Compression::bf16;
  const float largest = bf16 ? std::bit_cast<float>(0x7F7F0000u) : 65504;
  const int missing = bf16 ? 16 : 13;  // bits of a float's significand that the format lacks
  const int cut = std::min(missing + static_cast<int>(std::bit_width(ranks - 1)), 23);
  const auto bits = std::bit_cast<uint32_t>(largest / static_cast<float>(ranks));
  return std::bit_cast<float>(bits >> cut << cut);
}

}  // namespace

Compression compression_named(const std::string& name) {
  if (name == "none") return Compression::none;
  if (name == "bf16") return Compression::bf16;
  if (name == "fp16") return Compression::fp16;
  fail(Code::invalid_argument, "no compression '", name, "': there are none, fp16 and bf16");
}

Compressor::Compressor(const graph::ParameterStore& store, Compression format, int ranks,
                       bool feedback)
    : store_(store),
      format_(format),
      ranks_(static_cast<float>(ranks)),
      most_(most_of(format, static_cast<uint32_t>(ranks))),
      feedback_(feedback),
      arena_(store.device(), gpu::MemoryUse::device) {
  residual_ = feedback ? arena_.allocate_whole(uint64_t{store.count()} * 4) : store.gradients();
  one_ = arena_.allocate(sizeof(float));
  gpu::run_once(store.device(), {gpu::Fill{one_, std::bit_cast<uint32_t>(1.0f)}});
  forget();
}

void Compressor::forget() const {
  if (feedback_) gpu::run_once(store_.device(), {gpu::Fill{residual_, 0}});
}

uint64_t Compressor::bytes(const Bucket& bucket) {
  uint64_t bytes = 0;
  for (const Part& part : parts_of(bucket)) bytes += wire_bytes(part.range.count);
  return bytes;
}

void Compressor::emit_pack(ops::Emitter& emit, const Bucket& bucket, const gpu::Buffer& wire,
                           const Step& step) const {
  using gpu::Access;
  emit.set_label("compression");
  for (const Part& part : parts_of(bucket)) {
    const uint32_t count = part.range.count;
    emit.for_each("gradient_pack",
                  {{scalars(store_.gradients(), part.range), Access::read},
                   {scalars(residual_, part.range), feedback_ ? Access::read_write : Access::read},
                   {wire.slice(part.at, gpu::div_up(count, 2) * 4), Access::write},
                   {step.divisor ? step.divisor : one_, Access::read},
                   {step.loss_scale ? step.loss_scale : one_, Access::read},
                   {step.values, Access::read}},
                  PackPush{count, feedback_, ranks_, most_}, gpu::div_up(count, 2),
                  {static_cast<uint32_t>(format_)});
  }
}

void Compressor::emit_unpack(ops::Emitter& emit, const Bucket& bucket, const gpu::Buffer& wire,
                             const Step& step) const {
  using gpu::Access;
  emit.set_label("compression");
  for (const Part& part : parts_of(bucket)) {
    const uint32_t count = part.range.count;
    emit.for_each("gradient_unpack",
                  {{wire.slice(part.at, gpu::div_up(count, 2) * 4), Access::read},
                   {scalars(store_.gradients(), part.range), Access::write},
                   {step.values, Access::read}},
                  count, gpu::div_up(count, 2), {static_cast<uint32_t>(format_)});
  }
}

}  // namespace etr::parallel
