// Synchronous data parallelism: each rank computes the gradients of its part of a batch, and all
// ranks update with their mean.
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
  // Megabytes (1e6 bytes) of gradients in one exchange, at least.
  double bucket_mb = 4;
  // In training, batch normalization uses the moments of all ranks' rows.
  bool sync_batch_norm = false;
  Compression compression = Compression::none;
  bool feedback = true;  // see Compressor; without it, compressed training loses small gradients
  // What the ranks divide among them: 1 the optimizer's state, 2 also the gradients; see
  // ShardedUpdate.
  int zero_stage = 0;
};

// One rank's end. Its exchanges use the group one after another, so all ranks must submit the same
// steps in the same order. It must outlive the recordings of the commands that it made. A device
// may serve only one rank: its host turns run in sequence, so the turns of two ranks would block
// each other.
class DataParallel : public Sharing {
 public:
  // `tensor`: the ranks that share the model's tensors with this one and have the same rows.
  // `group` then holds the ranks with the same slices and other rows. Empty: the model is whole on
  // each rank.
  DataParallel(exchange::Group group, gpu::DevicePtr device, DataParallelOptions options = {},
               std::unique_ptr<TensorParallel> tensor = nullptr);
  ~DataParallel() override;

  int rank() const override;
  int size() const override;

  // Returns the peers for a plan that trains on batches of `rows` rows, which they must outlive;
  // nullptr if its ops do not need other ranks' rows.
  std::unique_ptr<ops::RowPeers> row_peers(int64_t rows) override;

  TensorParallel* tensor() const override { return tensor_.get(); }
  ShardedUpdate* sharded() const override { return sharded_.get(); }

  // Returns `commands`, which compute the gradients and results of a batch, and the update, with
  // the exchange woven in. The update sees means over the rows of all ranks, and so do the results;
  // they have the same bits on all ranks. Each rank counts as much as its rows weigh in the loss
  // (Step::weight); agree_on_unit() must have been called. Exchanges overlap with the commands that
  // follow a bucket's last one. If gradients are summed over several steps
  // (optim::UpdateSpec::accumulate), only the last one exchanges them. If a rank does not come, the
  // step ends with RankLost before the update. `memory` holds what the update needs.
  gpu::CommandList with_update(const gpu::CommandList& commands, optim::Update& update,
                               const graph::ParameterStore& store, const Step& step,
                               gpu::Kernels& kernels, gpu::Allocator& memory) override;

  // Called if this rank cannot continue: exchanges that wait for it, here and on other ranks, fail
  // with this reason. May be called on any thread.
  void abort(const std::string& reason) override {
    group_.abort(reason);
    if (tensor_) tensor_->abort(reason);
  }

  // Returns the largest number among all ranks. Collective, like share(); no step may be in flight.
  int64_t most(int64_t number) override;

  // Collective, like most(). In this unit, a full batch without weights counts 1, so its means keep
  // their bits, whatever the number of its elements.
  void agree_on_unit(int64_t elements) override;

  // Replaces the states that are not parameters, such as batch normalization's running statistics,
  // by their means over all ranks.
  void average_states(graph::ParameterStore& store) override;

  // Clears the rounding errors of compression. All ranks do it between the same steps, with none in
  // flight.
  void forget_residuals() override;

  // Copies the first rank's parameters and states to all ranks.
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
  gpu::Buffer room_for(const std::vector<gpu::Buffer>& parts);
  void emit(gpu::CommandList& before, gpu::CommandList& after, const Exchange& exchange,
            const std::vector<gpu::Buffer>& parts);

  exchange::Group group_;
  std::unique_ptr<TensorParallel> tensor_;
  gpu::DevicePtr device_;
  const DataParallelOptions options_;
  std::unique_ptr<Pages> pages_;
  gpu::Arena memory_;
  float unit_ = 1;
  std::unique_ptr<ShardedUpdate> sharded_;  // empty: each rank updates all weights
  std::unique_ptr<Compressor> compressor_;  // made with the first commands
};

}  // namespace etr::parallel
