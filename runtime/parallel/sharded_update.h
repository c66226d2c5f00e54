// Ranks that share out an update (ZeRO, Rajbhandari et al. 2020): each has the optimizer's state of a part of the parameters, and
// changes that part of the weights.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "exchange/group.h"
#include "graph/parameters.h"
#include "graph/plan.h"
#include "ops/op.h"
#include "optim/update.h"
#include "parallel/buckets.h"

namespace etr::parallel {

// One rank's end. The flat vector of parameters is cut into as many parts as there are ranks, of the same length but for alignment: rank
// r has the r-th. Where a part begins a tensor may be cut in two; all that is not elementwise needs an exchange, or is refused.
class ShardedUpdate {
 public:
  // `stage` 1: every rank has all gradients. 2: it has the mean gradients of its part, and its own only until they are sent.
  // `group` and `memory`, which the host sees, outlive it and the recordings of what it emits. About `bucket_bytes` are exchanged at once.
  ShardedUpdate(exchange::Group& group, gpu::Arena& memory, int stage, uint64_t bucket_bytes);

  int stage() const { return stage_; }
  int size() const { return group_.size(); }

  optim::Share share_of(const graph::ParameterStore& store) const;

  // Of stage 2, for a plan that trains on batches of `rows` rows: reduces the gradients onto the ranks that have their part, bucket by
  // bucket, while the backward pass goes on. The means are in Update::own_gradients() when the plan's commands have run.
  graph::TakeGradients take_gradients(const optim::Update& update,
                                      const graph::ParameterStore& store, int64_t rows);

  // Appends the update, when gradients are means and `loss` is that of all ranks: the first half of it in stage 2 alone.
  void emit_gradients(ops::Emitter& emit, optim::Update& update, const gpu::Buffer& loss,
                      const gpu::Buffer& step_values, gpu::Allocator& memory);
  void emit_change(ops::Emitter& emit, optim::Update& update, const graph::ParameterStore& store,
                   const gpu::Buffer& loss, const gpu::Buffer& step_values);

  // State that is shared out, as one device has it, and back; calls of all ranks while no step is in flight, but own_state().
  Tensor whole_state(const Tensor& own, const graph::ParameterStore& store);
  Tensor own_state(const Tensor& whole, const graph::ParameterStore& store) const;

 private:
  // So many exchanges are on their way, or in memory that both sides see, at once.
  static constexpr size_t kSlots = 3;
  struct Reduction;
  struct Chunk;

  size_t own_rank() const { return static_cast<size_t>(group_.rank()); }
  // Of all ranks, and the end.
  std::vector<uint32_t> begins(const graph::ParameterStore& store) const;
  gpu::Buffer slot(std::array<gpu::Buffer, kSlots>& slots, size_t number, uint64_t bytes);

  std::vector<Reduction> reductions_of(const Bucket& bucket,
                                       const graph::ParameterStore& store) const;
  void reduce(const Reduction& reduction, const gpu::Buffer& now, float rows);
  void send(gpu::CommandList& commands, Reduction& next, size_t number,
            const GradientOf& gradient_of, const gpu::Buffer& now, float rows);
  void receive(gpu::CommandList& commands, const Reduction& reduction, const gpu::Buffer& own,
               uint32_t first) const;

  Chunk chunk_of(const graph::ParameterStore& store, uint32_t from, uint32_t most) const;
  void send(ops::Emitter& emit, Chunk& chunk, const graph::ParameterStore& store,
            const gpu::Buffer& now);
  void receive(ops::Emitter& emit, const Chunk& chunk, const graph::ParameterStore& store,
               const gpu::Buffer& step_values) const;
  void emit_gather(ops::Emitter& emit, const graph::ParameterStore& store,
                   const gpu::Buffer& step_values);

  exchange::Group& group_;
  gpu::Arena& memory_;
  const int stage_;
  const uint64_t bucket_bytes_;
  std::array<gpu::Buffer, kSlots> sums_, parts_, weights_;
};

// What a rank is spared, for people.
std::string to_text(const ShardedUpdate& sharded, const optim::Update& update);

}  // namespace etr::parallel
