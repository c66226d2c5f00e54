// A model's parameters on the device, and what updates them. They do not depend on a batch's size.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "graph/parameters.h"
#include "nn/model.h"
#include "optim/update.h"
#include "parallel/sharing.h"
#include "pipeline/item.h"

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

struct Weights {
  // With the parameters' first values; the caller makes `update` when they are as they should be.
  Weights(gpu::Kernels& kernels, nn::ModelGraph of, uint64_t seed);

  void import(const Imported& given);

  // Shapes are checked first: Error(invalid_argument) that names what does not fit, and nothing is changed.
  void load(const Loaded& loaded);

  // As Learner::weights(), set_weights() and onnx().
  std::vector<pipeline::Field> read(const std::string& name) const;
  void write(const std::vector<pipeline::Field>& given);
  std::string onnx() const;

  const gpu::DevicePtr device;
  nn::ModelGraph net;  // of the first batch
  graph::ParameterStore store;
  std::unique_ptr<optim::LossScale> loss_scale;  // of float16
  std::unique_ptr<optim::Update> update;
  parallel::Sharing* ranks = nullptr;  // who share a step
  uint64_t age = 0;                         // grows when they change

 private:
  const ops::DeviceTensor& tensor(const std::string& name) const;
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
