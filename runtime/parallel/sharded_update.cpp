#include "parallel/sharded_update.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/bytes_text.h"
#include "parallel/staging.h"

namespace etr::parallel {
namespace {

// Scalars of a dispatch: every device can bind that many.
constexpr uint64_t kMostBound = uint64_t{1} << 24;

gpu::Buffer scalars(const gpu::Buffer& buffer, uint64_t begin, uint64_t count) {
  return buffer.slice(begin * sizeof(float), count * sizeof(float));
}

// A sequence of exchanges with at most `most` in flight; later ones reuse the memory of earlier
// ones.
template <typename Exchange>
class OnTheWay {
 public:
  OnTheWay(size_t most, std::function<void(const Exchange&)> receive)
      : most_(most), receive_(std::move(receive)) {}

  // Returns the number of the next exchange, after making room for it.
  size_t next() {
    if (sent_.size() - received_ == most_) receive_(sent_[received_++]);
    return sent_.size();
  }
  void add(Exchange sent) { sent_.push_back(std::move(sent)); }
  void receive_all() {
    while (received_ < sent_.size()) receive_(sent_[received_++]);
  }

 private:
  const size_t most_;
  const std::function<void(const Exchange&)> receive_;
  std::vector<Exchange> sent_;
  size_t received_ = 0;
};

}  // namespace

ShardedUpdate::ShardedUpdate(exchange::Group& group, gpu::Arena& memory, int stage,
                             uint64_t bucket_bytes, const float& unit)
    : group_(group),
      memory_(memory),
      stage_(stage),
      bucket_bytes_(std::max<uint64_t>(bucket_bytes, optim::Share::kAligned * sizeof(float))),
      unit_(unit) {}

std::vector<uint32_t> ShardedUpdate::begins(const graph::ParameterStore& store) const {
  constexpr uint32_t kUnit = optim::Share::kAligned;
  const uint64_t units = gpu::div_up(store.count(), kUnit);
  std::vector<uint32_t> out;
  for (int rank = 0; rank <= size(); ++rank) {
    const uint64_t begin = units * static_cast<uint64_t>(rank) / static_cast<uint64_t>(size());
    out.push_back(static_cast<uint32_t>(std::min<uint64_t>(begin * kUnit, store.count())));
  }
  return out;
}

optim::Share ShardedUpdate::share_of(const graph::ParameterStore& store) const {
  const auto begin = begins(store);
  const size_t rank = own_rank();
  return {begin[rank], begin[rank + 1] - begin[rank], stage_ == 2};
}

// Earlier plans keep their smaller slot if a larger one is needed.
gpu::Buffer ShardedUpdate::slot(std::array<gpu::Buffer, kSlots>& slots, size_t number,
                                uint64_t bytes) {
  gpu::Buffer& slot = slots[number % kSlots];
  if (slot.size_bytes < bytes) slot = memory_.allocate(bytes);
  return slot.slice(0, bytes);
}

// One reduction in flight. For each rank it holds the sender's weight, then the gradients of that
// rank's part.
struct ShardedUpdate::Reduction {
  struct Segment {  // a piece of a parameter within one rank's part
    const graph::ParameterStore::Parameter* parameter;
    uint32_t begin, count;  // scalars of the flat vector
    size_t rank;
    uint64_t at;  // in the rank's part
  };
  std::vector<Segment> segments;
  std::vector<uint64_t> counts;  // by rank
  gpu::Buffer sums = {}, part = {};
  Work work = {};

  uint64_t count() const {
    uint64_t count = 0;
    for (const uint64_t each : counts) count += each;
    return count;
  }
  uint64_t begin_of(size_t rank) const {
    uint64_t begin = 0;
    for (size_t r = 0; r < rank; ++r) begin += counts[r];
    return begin;
  }
};

// Splits large tensors into several exchanges to keep their memory small.
std::vector<ShardedUpdate::Reduction> ShardedUpdate::reductions_of(
    const Bucket& bucket, const graph::ParameterStore& store) const {
  const std::vector<uint32_t> begin = begins(store);
  const auto ranks = static_cast<size_t>(size());
  const uint64_t all = bucket.count(),
                 exchanges = std::max<uint64_t>(1, all * sizeof(float) / bucket_bytes_),
                 most = gpu::div_up(all, exchanges);
  std::vector<Reduction> out;
  uint64_t left = 0;
  const auto add = [&](const graph::ParameterStore::Parameter& parameter, size_t rank,
                       uint32_t from, uint32_t to) {
    while (from < to) {
      if (left == 0) out.push_back({{}, std::vector<uint64_t>(ranks, 1)});
      if (left == 0) left = most;
      const auto count = static_cast<uint32_t>(std::min<uint64_t>(left, to - from));
      uint64_t& at = out.back().counts[rank];
      out.back().segments.push_back({&parameter, from, count, rank, at});
      at += count;
      from += count;
      left -= count;
    }
  };
  for (const auto& parameter : store.parameters()) {
    if (std::ranges::none_of(bucket.ranges, [&](const Bucket::Range& range) {
          return parameter.begin >= range.begin && parameter.begin < range.begin + range.count;
        }))
      continue;
    for (size_t rank = 0; rank < ranks; ++rank)
      add(parameter, rank, std::max(parameter.begin, begin[rank]),
          std::min(parameter.begin + parameter.count, begin[rank + 1]));
  }
  return out;
}

// The result has the same bits as DataParallel's mean.
void ShardedUpdate::reduce(const Reduction& reduction, const gpu::Buffer& weight) {
  const float own = floats_at(weight)[0] / unit_;
  const std::span<float> sums = floats_at(reduction.sums);
  if (own != 1)
    for (float& value : sums) value *= own;
  for (size_t rank = 0; rank < reduction.counts.size(); ++rank)
    sums[reduction.begin_of(rank)] = own;
  const std::span<float> part = floats_at(reduction.part);
  group_.reduce_scatter<float>(sums, reduction.counts, part);
  const float share = share_of_sum(part[0]);
  for (float& value : part.subspan(1)) value *= share;
}

void ShardedUpdate::send(gpu::CommandList& commands, Reduction& next, size_t number,
                         const GradientOf& gradient_of, const gpu::Buffer& weight) {
  next.sums = slot(sums_, number, next.count() * sizeof(float));
  next.part = slot(parts_, number, next.counts[own_rank()] * sizeof(float));
  for (const auto& segment : next.segments) {
    const gpu::Buffer gradient = gradient_of(*segment.parameter);
    const gpu::Buffer to =
        scalars(next.sums, next.begin_of(segment.rank) + segment.at, segment.count);
    if (gradient)
      commands.push_back(gpu::Copy{
          scalars(gradient, segment.begin - segment.parameter->begin, segment.count), to});
    else  // the loss does not depend on it
      commands.push_back(gpu::Fill{to, 0});
  }
  next.work = work_of([this, next, weight] { reduce(next, weight); });
  commands.push_back(begin_of(next.work));
}

void ShardedUpdate::receive(gpu::CommandList& commands, const Reduction& reduction,
                            const gpu::Buffer& own, uint32_t first) const {
  commands.push_back(end_of(reduction.work));
  for (const auto& segment : reduction.segments)
    if (segment.rank == own_rank())
      commands.push_back(gpu::Copy{scalars(reduction.part, segment.at, segment.count),
                                   scalars(own, segment.begin - first, segment.count)});
}

graph::TakeGradients ShardedUpdate::take_gradients(const optim::Update& update,
                                                   const graph::ParameterStore& store) {
  return [this, &store, own = update.own_gradients(), first = share_of(store).begin](
             gpu::CommandList& commands, const auto& gradients, const gpu::Buffer& row_weight) {
    const gpu::Buffer weight = memory_.allocate(sizeof(float));
    const size_t weighed = final_after(commands, row_weight);
    const auto gradient_of = [&](const graph::ParameterStore::Parameter& parameter) {
      const auto found = gradients.find(parameter.name);
      return found == gradients.end() ? gpu::Buffer{} : found->second;
    };
    gpu::CommandList out;
    append(out, commands, 0, weighed);
    out.push_back(gpu::Copy{row_weight, weight});
    OnTheWay<Reduction> on_the_way(
        kSlots, [&](const Reduction& reduction) { receive(out, reduction, own, first); });
    weave(out, commands, weighed, make_buckets(commands, store, bucket_bytes_, gradient_of),
          [&](const Bucket& bucket) {
            for (Reduction& next : reductions_of(bucket, store)) {
              send(out, next, on_the_way.next(), gradient_of, weight);
              on_the_way.add(std::move(next));
            }
          });
    on_the_way.receive_all();
    commands = std::move(out);
  };
}

// A non-finite number in one part makes the update non-finite for all.
void ShardedUpdate::emit_gradients(ops::Emitter& emit, optim::Update& update,
                                   const gpu::Buffer& loss, const gpu::Buffer& step_values,
                                   gpu::Allocator& memory) {
  const gpu::Buffer verdict = memory.allocate(sizeof(float));
  update.emit_verdict(emit, verdict);
  emit_round_trip(emit.commands(), memory_, {verdict},
                  [this](std::span<float> there) { group_.all_reduce(there); });
  const optim::Update::Shared shared{verdict};
  update.emit_gradients(emit, loss, step_values, &shared);
}

void ShardedUpdate::emit_change(ops::Emitter& emit, optim::Update& update,
                                const graph::ParameterStore& store, const gpu::Buffer& loss,
                                const gpu::Buffer& step_values) {
  optim::Peers peers;
  if (stage_ == 2)
    peers.join_norm = [&](const gpu::Buffer& norm) {
      emit_round_trip(emit.commands(), memory_, {norm},
                      [this](std::span<float> own) { join_norm(group_, own[0]); });
    };
  peers.gather_weights = [&] { emit_gather(emit, store, step_values); };
  update.emit_change(emit, loss, step_values, peers);
}

// A piece of every rank's part of the weights, exchanged together.
struct ShardedUpdate::Chunk {
  struct Piece {            // of one rank's part
    uint32_t begin, count;  // scalars of the flat vector
    uint64_t at;            // scalars from the start of the memory
  };
  std::vector<Piece> pieces;  // by rank
  gpu::Buffer memory = {};
  Work work = {};
};

// Returns the chunk that starts at scalar `from` of each part.
ShardedUpdate::Chunk ShardedUpdate::chunk_of(const graph::ParameterStore& store, uint32_t from,
                                             uint32_t most) const {
  const std::vector<uint32_t> begin = begins(store);
  Chunk out;
  uint64_t at = 0;
  for (size_t rank = 0; rank + 1 < begin.size(); ++rank) {
    const uint32_t first = std::min(begin[rank + 1], begin[rank] + from),
                   count = std::min(begin[rank + 1] - first, most);
    out.pieces.push_back({first, count, at});
    at += count;
  }
  return out;
}

void ShardedUpdate::send(ops::Emitter& emit, Chunk& chunk, const graph::ParameterStore& store,
                         const gpu::Buffer& now) {
  const Chunk::Piece& own = chunk.pieces[own_rank()];
  if (own.count > 0)
    emit.add(gpu::Copy{scalars(store.weights(), own.begin, own.count),
                       scalars(chunk.memory, own.at, own.count)});
  std::vector<uint64_t> sizes;
  for (const Chunk::Piece& piece : chunk.pieces) sizes.push_back(piece.count * sizeof(float));
  chunk.work = work_of([this, now, sizes, own, memory = chunk.memory] {
    if (step_at(now).update == 0) return;
    uint64_t all = 0;
    for (const uint64_t size : sizes) all += size;
    const std::span<std::byte> there = bytes_at(memory).first(all);
    group_.all_gather(there.subspan(own.at * sizeof(float), own.count * sizeof(float)), sizes,
                      there);
  });
  emit.add(begin_of(chunk.work));
}

void ShardedUpdate::receive(ops::Emitter& emit, const Chunk& chunk,
                            const graph::ParameterStore& store,
                            const gpu::Buffer& step_values) const {
  emit.add(end_of(chunk.work));
  for (size_t rank = 0; rank < chunk.pieces.size(); ++rank) {
    const Chunk::Piece& piece = chunk.pieces[rank];
    if (rank == own_rank() || piece.count == 0) continue;
    optim::Update::emit_receive(emit, scalars(store.weights(), piece.begin, piece.count),
                                scalars(chunk.memory, piece.at, piece.count), step_values);
  }
}

// Exchanges the updated weights. If a step completes no update, nothing is exchanged, and old
// contents of the memory are not received.
void ShardedUpdate::emit_gather(ops::Emitter& emit, const graph::ParameterStore& store,
                                const gpu::Buffer& step_values) {
  constexpr uint64_t kUnit = optim::Share::kAligned;
  const auto ranks = static_cast<uint64_t>(size());
  const uint64_t units = std::min(bucket_bytes_ / sizeof(float), kMostBound) / ranks / kUnit;
  const auto most = static_cast<uint32_t>(std::max(units, uint64_t{1}) * kUnit);
  const std::vector<uint32_t> begin = begins(store);
  uint32_t longest = 0;
  for (size_t rank = 0; rank < ranks; ++rank)
    longest = std::max(longest, begin[rank + 1] - begin[rank]);

  emit.set_label("weights");
  const gpu::Buffer now = memory_.allocate(sizeof(ops::StepValues));
  emit.add(gpu::Copy{step_values, now});
  OnTheWay<Chunk> on_the_way(kSlots,
                             [&](const Chunk& chunk) { receive(emit, chunk, store, step_values); });
  for (uint32_t from = 0; from < longest; from += most) {
    Chunk chunk = chunk_of(store, from, most);
    chunk.memory = slot(weights_, on_the_way.next(), most * ranks * sizeof(float));
    send(emit, chunk, store, now);
    on_the_way.add(std::move(chunk));
  }
  on_the_way.receive_all();
}

Tensor ShardedUpdate::whole_state(const Tensor& own, const graph::ParameterStore& store) {
  const std::vector<uint32_t> begin = begins(store);
  std::vector<uint64_t> sizes;
  for (size_t r = 0; r + 1 < begin.size(); ++r)
    sizes.push_back((begin[r + 1] - begin[r]) * sizeof(float));
  Tensor whole(DType::f32, {store.count()});
  group_.all_gather(std::as_bytes(own.view<float>()), sizes,
                    std::as_writable_bytes(whole.mutable_view<float>()));
  return whole;
}

Tensor ShardedUpdate::own_state(const Tensor& whole, const graph::ParameterStore& store) const {
  const optim::Share share = share_of(store);
  Tensor own(DType::f32, {share.count});
  std::ranges::copy(whole.view<float>().subspan(share.begin, share.count),
                    own.mutable_view<float>().begin());
  return own;
}

std::string to_text(const ShardedUpdate& sharded, const optim::Update& update) {
  return cat(
      sharded.size(), " ranks shard the optimizer state",
      sharded.stage() == 2 ? " and the gradients" : "", " (zero_stage ", sharded.stage(),
      "): each saves ", bytes_text(static_cast<double>(update.spared_bytes())),
      update.spared_bytes() == 0 && sharded.size() > 1 ? ", as this optimizer keeps no state" : "");
}

}  // namespace etr::parallel
