// A model's parameters on the device, and what updates them. They do not depend on a batch's size.
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

// Weights of PyTorch; see nn/weights.h.
struct Imported {
  std::string path;
  checkpoint::NamedTensors tensors;
  std::map<std::string, std::string> names;
};

// Of a checkpoint.
struct Loaded {
  checkpoint::NamedTensors weights, optimizer;
  std::map<std::string, int64_t> rows;  // see Plans::trained_rows()
  std::string origin;
};

// As files of a checkpoint.
struct SavedWeights {
  checkpoint::NamedTensors weights, optimizer;
};

struct Weights {
  // With the parameters' first values; the caller makes `update` when they are as they should be. `tensor`: ranks that share the
  // model `of`; nullptr: it is whole here. Error(invalid_argument) that says why where nothing of it can be shared.
  // `stage`: which has a part of it likewise. `sharded`: ranks that share out the update. All outlive the weights.
  Weights(gpu::Kernels& kernels, nn::ModelGraph of, uint64_t seed,
          parallel::TensorParallel* tensor = nullptr, parallel::ModelStage* stage = nullptr,
          parallel::ShardedUpdate* sharded = nullptr);

  // What this rank computes of the model on batches of another shape.
  nn::ModelGraph part_of(nn::ModelGraph whole) const;

  void make_update(const optim::UpdateSpec& spec);

  // Whether others have a part of what is saved, so that all of them call saved().
  bool saves_together() const { return shared || stage || sharded; }

  // Of checkpoints, which are whole; all ranks call where they share tensors.
  checkpoint::NamedTensors save() const;
  checkpoint::NamedTensors save_state() const;

  void import(const Imported& given);

  // Shapes are checked first: Error(invalid_argument) that names what does not fit, and nothing is changed.
  void load(const Loaded& loaded);

  int64_t trainable() const;  // of the whole model
  // For a checkpoint. With stages, and with ranks that share out the update, a call of all of them: the first one has what all have
  // together, the others nothing.
  std::optional<SavedWeights> saved() const;

  // As Learner::weights(), set_weights() and onnx().
  std::vector<pipeline::Field> read(const std::string& name) const;
  void write(const std::vector<pipeline::Field>& given);
  std::string onnx() const;

  bool has(const std::string& name) const;  // here, and not in another stage of the model

  const gpu::DevicePtr device;
  parallel::TensorParallel* const tensor_ranks;  // nullptr: the model is whole here
  const nn::ModelGraph whole;                    // of the first batch
  const nn::SplitModel split;                    // empty where the model is whole here
  const nn::ModelGraph& net;                     // what this rank computes: one of these
  std::unique_ptr<SharedTensors> shared;         // empty likewise
  parallel::ModelStage* const stage;             // nullptr: this rank has all layers
  parallel::ShardedUpdate* const sharded;        // nullptr: this rank updates all weights
  graph::ParameterStore store;
  std::unique_ptr<optim::LossScale> loss_scale;  // of float16
  std::unique_ptr<optim::Update> update;
  parallel::Sharing* ranks = nullptr;    // who share a step
  std::unique_ptr<ServedTables> served;  // empty: all tables are in the store
  uint64_t age = 0;                      // grows when they change

 private:
  const ops::DeviceTensor& tensor(const std::string& name) const;
  Tensor own_state(const std::string& name, const Tensor& given) const;
  Loaded of_stage(const Loaded& all) const;
  std::vector<bool> whole_values_of(int of_stage) const;
};

// Errors of `check` say that `origin` is of another model or optimizer.
template <typename Check>
void check_origin(const std::string& origin, const char* what, Check&& check) {
  try {
    check();
  } catch (const Error& error) {
    fail(error.code(), origin, " is of another ", what, ": ", error.what(), ". Load it with the ",
         what, " that it was made with, or begin anew in another folder");
  }
}

}  // namespace etr::train
