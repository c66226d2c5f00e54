// The interface through which a learner trains together with others, whichever the algorithm.
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

// One learner's end. Only the learner's thread uses it, and while no step is in flight, unless a
// function says otherwise.
class Sharing {
 public:
  virtual ~Sharing() = default;

  // Selects random numbers: rows of different ranks have different ones.
  virtual int rank() const = 0;
  virtual int size() const { return 1; }  // the number of ranks whose rows form one batch

  // Returns the peers for a plan that trains on batches of `rows` rows, which they must outlive;
  // nullptr if its ops do not need other ranks' rows.
  virtual std::unique_ptr<ops::RowPeers> row_peers(int64_t /*rows*/) { return nullptr; }

  // The ranks that share the model's tensors with this one; nullptr: the model is whole here.
  virtual TensorParallel* tensor() const { return nullptr; }

  // Where the rows of sparse tables are; nullptr: the tables are ordinary parameters.
  virtual ServedRows* rows() { return nullptr; }

  // The ranks among which the update is divided; nullptr: this one keeps all of the optimizer's
  // state and updates all weights.
  virtual ShardedUpdate* sharded() const { return nullptr; }

  // Bytes exchanged other than through the group of all ranks.
  virtual uint64_t bytes() const { return 0; }

  // Inputs of a step's update, besides the gradients.
  struct Step {
    gpu::Buffer values;                // ops::StepValues
    std::vector<gpu::Buffer> results;  // means over the batch's rows, one f32 each, the loss first
    gpu::Buffer weight = {};  // f32 [1]: what these rows weigh in the loss (Plan::row_weights())
    const graph::Slices* slices = nullptr;  // of the parameters that ranks share; nullptr: none
    gpu::Buffer loss_scale = {};            // f32 [1] if the gradients are multiplied by it
    std::vector<ops::DeviceTensor> row_gradients = {};  // for the tables of rows(), in their order
  };

  // Returns `commands`, which compute the gradients and results of a batch, then the update, with
  // the exchanges of a step woven in. `memory` holds what the update needs. By default there is no
  // exchange.
  virtual gpu::CommandList with_update(const gpu::CommandList& commands, optim::Update& update,
                                       const graph::ParameterStore& store, const Step& step,
                                       gpu::Kernels& kernels, gpu::Allocator& memory);

  // Returns the largest batch, in rows, among the ranks that exchange within a step. Plans are made
  // for it.
  virtual int64_t most(int64_t rows) { return rows; }

  // Called when plans for another shape of batches have been made, after most(), by the same ranks:
  // a full batch has `elements` in the loss (graph::elements_of_mean()). Their largest number
  // becomes the unit of Step::weight.
  virtual void agree_on_unit(int64_t /*elements*/) {}

  // Clears the residuals of compressed gradients. All ranks do it between the same steps.
  virtual void forget_residuals() {}

  // Makes the initial weights the same for all.
  virtual void share(graph::ParameterStore& store) = 0;

  // Calls `set`, which replaces the weights after share() by those of the program or of a
  // checkpoint. Error(state) if this end may not set them.
  virtual void replace_weights(graph::ParameterStore& /*store*/, const std::function<void()>& set) {
    set();
  }

  // Records the start of step number `steps`, which is in flight.
  void started(uint64_t steps) {
    steps_ = steps;
    ++started_;
  }

  // Called before the next step: returns whether weights must be exchanged first. Steps may be in
  // flight.
  virtual bool exchange_due() { return false; }
  virtual void exchange(graph::ParameterStore& /*store*/) {}

  // Waits for at most `seconds`, and for steps in flight. Returns whether exchange() will then not
  // have to wait for others.
  virtual bool ready_within(double /*seconds*/) { return true; }

  // Called before this learner evaluates or saves: gives it the weights and states of the whole
  // group.
  virtual void average_states(graph::ParameterStore& store) = 0;

  // Called if this rank cannot continue: exchanges that wait for it, here and on other ranks, fail
  // with this reason. May be called on any thread.
  virtual void abort(const std::string& /*reason*/) {}

  // Called after the last step, before the last evaluation and checkpoint: makes a last exchange of
  // weights, unless the previous one came after the last step.
  virtual void settle(graph::ParameterStore& /*store*/) {}

  // Called after settle(): sends the others what they do not have yet. `all_end`: also ends
  // learners that would continue without this one.
  virtual void finish(graph::ParameterStore& /*store*/, bool /*all_end*/) {}
  // The same for a learner that has not called share().
  virtual void leave(bool /*all_end*/) {}

  // Returns whether another learner has ended the run for all. Steps may be in flight.
  virtual bool told_to_end() const { return false; }

  // What a checkpoint holds besides the weights. load() is called before share().
  virtual void save(checkpoint::Files& /*files*/) const {}
  virtual void load(const checkpoint::Files& /*files*/, const std::string& /*origin*/) {}

 protected:
  uint64_t steps() const { return steps_; }           // 0 before this process's first step
  uint64_t started_here() const { return started_; }  // steps made by this process

 private:
  uint64_t steps_ = 0, started_ = 0;
};

// Store a vector of f32 as a checkpoint file, and read it. take_vector() throws
// Error(invalid_argument) if the file is missing, because the checkpoint belongs to another
// algorithm.
void put_vector(checkpoint::Files& files, const char* file, std::span<const float> values);
std::vector<float> take_vector(const checkpoint::Files& files, const char* file,
                               const std::string& origin);

// Copies the first rank's parameters and states to all ranks. Collective.
void broadcast_weights(exchange::Group& group, graph::ParameterStore& store);

// Replaces the states that are not parameters, such as batch normalization's running statistics, by
// their means over all ranks. Collective.
void average_states(exchange::Group& group, graph::ParameterStore& store);

// Copy all parameters, or another buffer with the same layout, as they lie there.
std::vector<float> download_flat(const graph::ParameterStore& store, const gpu::Buffer& from);
void upload_flat(const graph::ParameterStore& store, std::span<const float> from,
                 const gpu::Buffer& to);

}  // namespace etr::parallel
