// An update divided among ranks (ZeRO, Rajbhandari et al. 2020): each rank keeps the optimizer's
// state of its part of the parameters, and updates that part of the weights.
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

// One rank's end. The flat vector of parameters is cut into one part per rank, of equal length
// except for alignment; rank r has the r-th. A cut may go through a tensor, so whatever is not
// elementwise needs an exchange, or is refused.
class ShardedUpdate {
 public:
  // `stage` 1: every rank has all gradients. 2: a rank has the mean gradients of its part, and
  // keeps its own gradients only until they are sent. `group` and `memory`, which is host-visible,
  // must outlive this object and the recordings of what it emits. One exchange carries about
  // `bucket_bytes`. `unit`, in which the weights of ranks are counted (Sharing::agree_on_unit()),
  // is read in each step.
  ShardedUpdate(exchange::Group& group, gpu::Arena& memory, int stage, uint64_t bucket_bytes,
                const float& unit);

  int stage() const { return stage_; }
  int size() const { return group_.size(); }

  optim::Share share_of(const graph::ParameterStore& store) const;

  // Stage 2: reduces the gradients onto the ranks that own them, bucket by bucket, while the
  // backward pass continues. When the plan's commands have run, Update::own_gradients() holds the
  // means.
  graph::TakeGradients take_gradients(const optim::Update& update,
                                      const graph::ParameterStore& store);

  // Append the two halves of the update. `loss` and the gradients must already be means over all
  // ranks. Only stage 2 needs emit_gradients().
  void emit_gradients(ops::Emitter& emit, optim::Update& update, const gpu::Buffer& loss,
                      const gpu::Buffer& step_values, gpu::Allocator& memory);
  void emit_change(ops::Emitter& emit, optim::Update& update, const graph::ParameterStore& store,
                   const gpu::Buffer& loss, const gpu::Buffer& step_values);

  // Convert divided state to the layout of one device, and back. whole_state() is collective, and
  // no step may be in flight.
  Tensor whole_state(const Tensor& own, const graph::ParameterStore& store);
  Tensor own_state(const Tensor& whole, const graph::ParameterStore& store) const;

 private:
  // The number of exchanges that are in flight, or hold shared memory, at once.
  static constexpr size_t kSlots = 3;
  struct Reduction;
  struct Chunk;

  size_t own_rank() const { return static_cast<size_t>(group_.rank()); }
  // Returns where each rank's part begins, and the end.
  std::vector<uint32_t> begins(const graph::ParameterStore& store) const;
  gpu::Buffer slot(std::array<gpu::Buffer, kSlots>& slots, size_t number, uint64_t bytes);

  std::vector<Reduction> reductions_of(const Bucket& bucket,
                                       const graph::ParameterStore& store) const;
  void reduce(const Reduction& reduction, const gpu::Buffer& weight);
  void send(gpu::CommandList& commands, Reduction& next, size_t number,
            const GradientOf& gradient_of, const gpu::Buffer& weight);
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
  const float& unit_;
  std::array<gpu::Buffer, kSlots> sums_, parts_, weights_;
};

// Describes for the user how much memory a rank saves.
std::string to_text(const ShardedUpdate& sharded, const optim::Update& update);

}  // namespace etr::parallel
