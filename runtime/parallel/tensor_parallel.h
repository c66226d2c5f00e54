// Ranks that share the tensors of a model: each computes with slices of some, and all have the same rows.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "exchange/group.h"
#include "graph/parameters.h"
#include "graph/slice.h"
#include "ops/op.h"
#include "optim/optimizer.h"
#include "tensor/tensor.h"

namespace etr::parallel {

// One rank's end. Host turns of its device use the group; the other calls do, too, while no step is in flight: all ranks make them.
// Replicas stay alike to the bit: gradients of whole parameters become the mean of all ranks' before an update.
class TensorParallel {
 public:
  TensorParallel(exchange::Group group, gpu::DevicePtr device)
      : group_(std::move(group)), device_(std::move(device)) {}

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  void abort(const std::string& reason) { group_.abort(reason); }  // see DataParallel::abort()

  // Of a plan, which it outlives.
  std::unique_ptr<ops::SlicePeers> peers();

  // Appends the commands that replace `means`, whole tensors, by their means over all ranks. `memory`: see emit_round_trip().
  void emit_means(gpu::CommandList& commands, gpu::Allocator& memory,
                  const std::vector<gpu::Buffer>& means);

  // Appends the commands that replace the gradients of parameters not in `slices`, which all ranks have whole, by their means over the
  // ranks. They differ only by the rounding of kernels, which a device may choose by measuring; without this, differences would add up.
  void emit_replicas(gpu::CommandList& commands, gpu::Allocator& memory,
                     const graph::ParameterStore& store, const graph::Slices& slices);

  // What an update needs of the other ranks if they share the parameters in `slices`. Valid while it is emitted into `emit`.
  optim::Peers update_peers(ops::Emitter& emit, gpu::Allocator& memory,
                            const graph::Slices& slices);

  // The whole tensor of each rank's slice. A call of all ranks.
  Tensor gather(const Tensor& own, const graph::Slice& slice);

 private:
  exchange::Group group_;
  gpu::DevicePtr device_;
};

}  // namespace etr::parallel
