// Tensor parallelism: each rank computes with slices of some tensors, and all ranks have the same
// rows.
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

// One rank's end. The host turns of its device use the group, and so do the other calls, which all
// ranks make while no step is in flight. Replicas keep the same bits: gradients of whole parameters
// are averaged over the ranks before an update.
class TensorParallel {
 public:
  TensorParallel(exchange::Group group, gpu::DevicePtr device)
      : group_(std::move(group)), device_(std::move(device)) {}

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  void abort(const std::string& reason) { group_.abort(reason); }  // see DataParallel::abort()

  // Returns the peers for a plan, which they must outlive.
  std::unique_ptr<ops::SlicePeers> peers();

  // Appends commands that replace `means`, whole tensors, by their means over all ranks. `memory`:
  // see emit_round_trip().
  void emit_means(gpu::CommandList& commands, gpu::Allocator& memory,
                  const std::vector<gpu::Buffer>& means);

  // Appends commands that replace the gradients of parameters not in `slices`, which are whole on
  // all ranks, by their means over the ranks. They differ only by rounding, since a device may
  // choose kernels by measuring; without the means, the differences would add up.
  void emit_replicas(gpu::CommandList& commands, gpu::Allocator& memory,
                     const graph::ParameterStore& store, const graph::Slices& slices);

  // Returns what an update needs of the other ranks if they share the parameters in `slices`. Valid
  // while the update is emitted into `emit`.
  optim::Peers update_peers(ops::Emitter& emit, gpu::Allocator& memory,
                            const graph::Slices& slices);

  // Returns the whole tensor, gathered from the ranks' slices. Collective.
  Tensor gather(const Tensor& own, const graph::Slice& slice);

 private:
  exchange::Group group_;
  gpu::DevicePtr device_;
};

}  // namespace etr::parallel
