// Synchronous data parallelism: each rank computes the gradients of its part of a batch, and all update with their mean.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/buckets.h"
#include "parallel/compression.h"
#include "parallel/sharded_update.h"
#include "parallel/sharing.h"
#include "parallel/tensor_parallel.h"

namespace etr::parallel {

struct DataParallelOptions {
  double bucket_mb =
      4;  // at least so many megabytes (1e6 bytes) of gradients are exchanged at once
  bool sync_batch_norm = false;  // moments in training are those of all ranks' rows
  Compression compression = Compression::none;
  bool feedback = true;  // see Compressor; without it compressed training loses what is small
  // What of an update ranks share out: 1 the optimizer's state, 2 the gradients as well; see ShardedUpdate.
  int zero_stage = 0;
};

// One rank's end. Its weaves use the group one after another: all ranks submit the same steps in the same order. Outlives the
// recordings of what it wove. A device serves one rank only: its host turns come one after another, so those of a second one would
// wait for each other.
class DataParallel : public Sharing {
 public:
  // `tensor`: ranks with the same rows, with which this one shares the model's tensors; each has its own group `group` of those with
  // other rows and the same slices. Empty: the model is whole on each rank.
  DataParallel(exchange::Group group, gpu::DevicePtr device, DataParallelOptions options = {},
               std::unique_ptr<TensorParallel> tensor = nullptr);
  ~DataParallel() override;

  int rank() const override;
  int size() const override;

  // For a plan that trains on batches of `rows` rows, which it outlives; empty where its ops need no other rank's rows.
  std::unique_ptr<ops::RowPeers> row_peers(int64_t rows) override;

  TensorParallel* tensor() const override { return tensor_.get(); }
  ShardedUpdate* sharded() const override { return sharded_.get(); }

  // `commands`, which compute gradients and results of a batch, and the update, with the exchange woven in: what the update sees,
  // and the results, are means over the rows of all ranks, alike to the bit on all of them. A rank with fewer rows
  // (StepValues::valid_rows) weighs less; it has one at least. Exchanges go on beside the commands that follow a bucket's last
  // one; where gradients are summed over several steps (optim::UpdateSpec::accumulate) they are exchanged in the last of them only.
  // The step ends with RankLost where a rank does not come: what follows the exchange, the update, is left out.
  // `memory` is for what the update needs.
  gpu::CommandList with_update(const gpu::CommandList& commands, optim::Update& update,
                               const graph::ParameterStore& store, const Step& step,
                               gpu::Kernels& kernels, gpu::Allocator& memory) override;

  // This rank cannot go on: exchanges that wait for it, here and on other ranks, end with this reason. Any thread.
  void abort(const std::string& reason) override {
    group_.abort(reason);
    if (tensor_) tensor_->abort(reason);
  }

  // The largest number that a rank has. A call of all ranks, as share() is, while no step is in flight.
  int64_t most(int64_t number) override;

  // States that are no parameters, as the running statistics of batch normalisation, become the means of all ranks'.
  void average_states(graph::ParameterStore& store) override;

  // What compression has kept back of gradients so far is dropped. All ranks do it between the same steps, while none is in flight.
  void forget_residuals() override;

  // The first rank's parameters and states become those of all.
  void share(graph::ParameterStore& store) override;

 private:
  struct Exchange;
  class Pages;

  gpu::CommandList with_own_update(const gpu::CommandList& commands, optim::Update& update,
                                   const graph::ParameterStore& store, const Step& step,
                                   gpu::Kernels& kernels, gpu::Allocator& memory);
  void emit_change(ops::Emitter& emit, optim::Update& update, const graph::ParameterStore& store,
                   const Step& step);
  void emit_verdict(ops::Emitter& emit, const optim::Update& update, const gpu::Buffer& verdict);
  gpu::CommandList averaged(const gpu::CommandList& commands, const graph::ParameterStore& store,
                            const Step& step, gpu::Kernels& kernels, gpu::Allocator& memory);
  gpu::CommandList with_means(const gpu::CommandList& commands, const graph::ParameterStore& store,
                              const Step& step);
  gpu::CommandList with_sums(
      const gpu::CommandList& commands, const graph::ParameterStore& store, const Step& step,
      gpu::Kernels& kernels, gpu::Allocator& memory,
      const std::function<gpu::CommandList(const gpu::Buffer& divisor)>& sum);
  gpu::CommandList with_compressed(const gpu::CommandList& commands,
                                   const graph::ParameterStore& store, const Step& step,
                                   gpu::Kernels& kernels, gpu::Allocator& memory);
  void emit_compressed(ops::Emitter& before, ops::Emitter& after, const Bucket& bucket,
                       const gpu::Buffer& values, const Compressor::Step& step);
  Compressor& compressor(const graph::ParameterStore& store);
  std::vector<Bucket> buckets_of(const gpu::CommandList& commands,
                                 const graph::ParameterStore& store) const;
  Exchange make_exchange(uint64_t bytes, const gpu::Buffer& values, const Step& step);
  void emit(gpu::CommandList& before, gpu::CommandList& after, const Exchange& exchange,
            const std::vector<gpu::Buffer>& parts);

  exchange::Group group_;
  std::unique_ptr<TensorParallel> tensor_;
  gpu::DevicePtr device_;
  const DataParallelOptions options_;
  std::unique_ptr<Pages> pages_;
  gpu::Arena memory_;
  std::unique_ptr<ShardedUpdate> sharded_;  // none: each rank updates all
  std::unique_ptr<Compressor> compressor_;  // from the first weave on
};

}  // namespace etr::parallel
