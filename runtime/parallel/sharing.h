// How a learner trains together with others: what it asks of them, whichever the algorithm.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/store.h"
#include "exchange/group.h"
#include "gpu/kernel.h"
#include "graph/parameters.h"
#include "graph/slice.h"
#include "ops/peers.h"
#include "optim/update.h"

namespace etr::parallel {

class ServedRows;
class ShardedUpdate;
class TensorParallel;

// One learner's end. Used by the learner's thread, while no step is in flight unless a function says otherwise.
class Sharing {
 public:
  virtual ~Sharing() = default;

  virtual int rank() const = 0;           // rows of different ranks have different random numbers
  virtual int size() const { return 1; }  // ranks whose rows are one batch

  // For a plan that trains on batches of `rows` rows, which it outlives; empty where its ops need no other rank's rows.
  virtual std::unique_ptr<ops::RowPeers> row_peers(int64_t /*rows*/) { return nullptr; }

  // The ranks with which this one shares the model's tensors; nullptr: the model is whole here.
  virtual TensorParallel* tensor() const { return nullptr; }

  // Where the rows of sparse tables are; nullptr: those are parameters like any other.
  virtual ServedRows* rows() { return nullptr; }

  // The ranks among which the update is divided; nullptr: this one has all of the optimizer's state, and updates all weights.
  virtual ShardedUpdate* sharded() const { return nullptr; }

  // Exchanged by other ways than the group of all ranks.
  virtual uint64_t bytes() const { return 0; }

  // What a step has besides gradients.
  struct Step {
    gpu::Buffer values;                // ops::StepValues
    std::vector<gpu::Buffer> results;  // means over the batch's rows, one f32 each: first the loss
    int64_t rows = 0;                  // of a whole batch; the same on all ranks
    const graph::Slices* slices = nullptr;  // of the parameters that ranks share; nullptr: of none
    gpu::Buffer loss_scale = {};            // f32 [1], where gradients come multiplied by it
    std::vector<ops::DeviceTensor> row_gradients = {};  // of the tables of rows(), in their order
  };

  // `commands`, which compute gradients and results of a batch, then the update, with what is exchanged within a step woven in.
  // `memory` is for what the update needs. Without an exchange: the commands and the update.
  virtual gpu::CommandList with_update(const gpu::CommandList& commands, optim::Update& update,
                                       const graph::ParameterStore& store, const Step& step,
                                       gpu::Kernels& kernels, gpu::Allocator& memory);

  // The largest batch, in rows, among the ranks that exchange within a step: plans are made for that many.
  virtual int64_t most(int64_t rows) { return rows; }

  // Drops the residuals of compressed gradients. All ranks do it between the same steps.
  virtual void forget_residuals() {}

  // The weights to begin with become the same for all.
  virtual void share(graph::ParameterStore& store) = 0;

  // `set` replaces the weights that this learner has had since share() by the program's or a checkpoint's. Error(state) if this end may
  // not set them.
  virtual void replace_weights(graph::ParameterStore& /*store*/, const std::function<void()>& set) {
    set();
  }

  // A step was started, the `steps`-th. It is in flight.
  void started(uint64_t steps) {
    steps_ = steps;
    ++started_;
  }

  // Before the next step: whether weights are to be exchanged between the two. Steps may be in flight.
  virtual bool exchange_due() { return false; }
  virtual void exchange(graph::ParameterStore& /*store*/) {}

  // Whether exchange() will not have to wait for others, after at most `seconds`. Steps may be in flight; it waits for them.
  virtual bool ready_within(double /*seconds*/) { return true; }

  // Before this learner evaluates or saves: the weights and states become those of the whole, not of this end alone.
  virtual void average_states(graph::ParameterStore& store) = 0;

  // This end cannot go on: exchanges that wait for it, here and on other ranks, fail with this reason. Any thread.
  virtual void abort(const std::string& /*reason*/) {}

  // After the last step, before the last evaluation and checkpoint: the last exchange of weights. Does nothing if the previous exchange
  // came after the last step.
  virtual void settle(graph::ParameterStore& /*store*/) {}

  // After that: tells the others what they do not know yet. `all_end`: ends those, too, that would go on by themselves.
  virtual void finish(graph::ParameterStore& /*store*/, bool /*all_end*/) {}
  // The same for an end that never came to share().
  virtual void leave(bool /*all_end*/) {}

  // Whether another one has ended for all. Steps may be in flight.
  virtual bool told_to_end() const { return false; }

  // What a checkpoint has to hold besides the weights. load() comes before share().
  virtual void save(checkpoint::Files& /*files*/) const {}
  virtual void load(const checkpoint::Files& /*files*/, const std::string& /*origin*/) {}

 protected:
  uint64_t steps() const { return steps_; }           // 0 before the first of this process
  uint64_t started_here() const { return started_; }  // steps of this process

 private:
  uint64_t steps_ = 0, started_ = 0;
};

// A vector of f32 as a file of a checkpoint. take_vector() throws Error(invalid_argument) where the file is missing: the checkpoint is
// of another algorithm.
void put_vector(checkpoint::Files& files, const char* file, std::span<const float> values);
std::vector<float> take_vector(const checkpoint::Files& files, const char* file,
                               const std::string& origin);

// The first rank's parameters and states become those of all. A call of all ranks.
void broadcast_weights(exchange::Group& group, graph::ParameterStore& store);

// States that are no parameters, as the running statistics of batch normalisation, become the means of all ranks'. A call of all.
void average_states(exchange::Group& group, graph::ParameterStore& store);

// All parameters, or another buffer that is laid out like them, as they lie there.
std::vector<float> download_flat(const graph::ParameterStore& store, const gpu::Buffer& from);
void upload_flat(const graph::ParameterStore& store, std::span<const float> from,
                 const gpu::Buffer& to);

}  // namespace etr::parallel
