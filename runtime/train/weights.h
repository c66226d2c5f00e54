// A model's parameters on the device, and their update. They do not depend on the batch size.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "graph/parameters.h"
#include "nn/model.h"
#include "nn/split.h"
#include "optim/update.h"
#include "parallel/model_stage.h"
#include "parallel/sharded_update.h"
#include "parallel/sharing.h"
#include "pipeline/item.h"
#include "train/served_tables.h"
#include "train/shared_tensors.h"

namespace etr::train {

// PyTorch weights; see nn/weights.h.
struct Imported {
  std::string path;
  checkpoint::NamedTensors tensors;
  std::map<std::string, std::string> names;
};

// Weights and optimizer state of a checkpoint.
struct Loaded {
  checkpoint::NamedTensors weights, optimizer;
  std::map<std::string, int64_t> rows;  // see Plans::trained_rows()
  std::vector<std::string> frozen;      // parameters, for which there is no optimizer state
  std::string origin;
  // Not "": the frozen parameters are not stored; see Weights::base(). Then `scale` is alpha / rank
  // of the adapters.
  std::string base;
  double scale = 0;
};

// The same as a checkpoint's files store them.
struct SavedWeights {
  checkpoint::NamedTensors weights, optimizer;
};

struct Weights {
  // Gives the parameters their initial values; the caller calls make_update() once the weights are
  // as they should be. `tensor`: the ranks that share the model `of`; nullptr: it is whole here.
  // Error(invalid_argument) says why if none of it can be shared. `stage`: the pipeline stage, if
  // this rank has a part of the layers. `sharded`: the ranks that divide the update. All of these
  // must outlive the weights.
  Weights(gpu::Kernels& kernels, nn::ModelGraph of, uint64_t seed,
          parallel::TensorParallel* tensor = nullptr, parallel::ModelStage* stage = nullptr,
          parallel::ShardedUpdate* sharded = nullptr);

  // Returns the part of the model that this rank computes, for batches of another shape.
  nn::ModelGraph part_of(nn::ModelGraph whole) const;

  void make_update(const optim::UpdateSpec& spec);

  // Returns whether others have a part of what is saved, so that all of them call saved().
  bool saves_together() const { return shared || stage || sharded; }

  // Return whole tensors, as checkpoints have them. Collective if ranks share tensors.
  checkpoint::NamedTensors save() const;
  checkpoint::NamedTensors save_state() const;

  void import(const Imported& given);

  // Replaces the initial values of these weights. Error(invalid_argument) names one whose shape
  // does not fit.
  void start_from(const checkpoint::NamedTensors& given);

  // Returns the part of a checkpoint that this rank stores. Error(invalid_argument) names what does
  // not fit.
  SavedWeights own_of(const Loaded& loaded) const;
  void load(const SavedWeights& own);

  int64_t trainable() const;                // of the whole model
  std::vector<std::string> frozen() const;  // parameters, in the model's order
  // Returns what a checkpoint stores. With stages, or ranks that divide the update, it is
  // collective: the first rank gets the state of all, the others nothing.
  std::optional<SavedWeights> saved() const;

  // Like Learner::weights(), set_weights() and onnx().
  std::vector<pipeline::Field> read(const std::string& name) const;
  void write(const std::vector<pipeline::Field>& given);
  std::string onnx(const nn::Model& model) const;

  // Returns a checksum of the frozen parameters of a model with adapters, whose checkpoints hold
  // what is trained alone; "" for other models. The first call after a change of the weights from
  // outside copies all frozen parameters from the device.
  std::string base() const;

  // Passes in training mode move the running statistics. A pass that only looks gives them back.
  checkpoint::NamedTensors states() const;
  void set_states(const checkpoint::NamedTensors& to);

  // Like Learner::gradients() and set_gradients(). The model is whole here.
  std::vector<pipeline::Field> read_gradients(const std::string& name) const;
  void write_gradients(const std::vector<pipeline::Field>& given);

  bool has(const std::string& name) const;  // here, and not only in another stage of the model

  const gpu::DevicePtr device;
  parallel::TensorParallel* const tensor_ranks;  // nullptr: the model is whole here
  const nn::ModelGraph whole;                    // for the first batch
  const nn::SplitModel split;                    // empty if the model is whole here
  const nn::ModelGraph& net;                     // what this rank computes: one of the two above
  std::unique_ptr<SharedTensors> shared;         // null if the model is whole here
  parallel::ModelStage* const stage;             // nullptr: this rank has all layers
  parallel::ShardedUpdate* const sharded;        // nullptr: this rank updates all weights
  graph::ParameterStore store;
  std::unique_ptr<optim::LossScale> loss_scale;  // for float16
  std::unique_ptr<optim::Update> update;
  parallel::Sharing* ranks = nullptr;    // those that take part in a step
  std::unique_ptr<ServedTables> served;  // null: all tables are in the store
  uint64_t age = 0;                      // counts changes of the weights

 private:
  void add_base(checkpoint::NamedTensors& tensors, const Loaded& loaded) const;
  void require(const std::string& name) const;  // throws if the model has no such weight
  const ops::DeviceTensor& gradient(const std::string& name) const;
  Tensor own_state(const std::string& name, const Tensor& given) const;
  Loaded of_stage(const Loaded& all) const;
  std::vector<bool> whole_values_of(int of_stage) const;

  mutable std::string base_;  // "": not computed since the last change
};

// Makes errors of `check` say that `origin` belongs to another model or optimizer.
template <typename Check>
void check_origin(const std::string& origin, const char* what, Check&& check) {
  try {
    check();
  } catch (const Error& error) {
    fail(error.code(), origin, " is of another ", what, ": ", error.what(), ". Load it with the ",
         what, " that it was made with, or start again in another folder");
  }
}

}  // namespace etr::train
