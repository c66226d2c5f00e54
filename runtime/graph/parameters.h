// The parameters and states of a model in device memory.
//
// All trainable parameters lie in one buffer and their gradients in another, so that one dispatch
// updates them all. Parameters under weight decay come first. Training and evaluation plans of the
// same model share one store.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace etr::graph {

class ParameterStore {
 public:
  // Places every parameter and state of `graph` and initialises them from `seed`. `has`, indexed by
  // the graph's values, restricts them to those that a part of the graph uses; empty: all. Without
  // `keeps_gradients` each plan holds its own gradients, for as long as it needs them
  // (TakeGradients).
  ParameterStore(gpu::DevicePtr device, const Graph& graph, uint64_t seed,
                 std::vector<bool> has = {}, bool keeps_gradients = true);

  // Shares the parameters and states of `shared`, which must outlive it, for a graph with the same
  // ones: the same model on batches of another shape. Constants may depend on that shape and are
  // its own.
  ParameterStore(const ParameterStore& shared, const Graph& graph);

  // Throws Error(not_found), and Error(internal) for a quantised weight, which is no f32 tensor.
  const ops::DeviceTensor& tensor(const std::string& name) const;
  const Shape& shape(const std::string& name) const { return stored(name).shape; }
  // Returns a tensor's buffer as it is stored, and the shape of the f32 tensor that it represents.
  // A buffer of fewer than 32 bits a number holds packed words (graph/quantized.h).
  const ops::DeviceTensor& stored(const std::string& name) const;
  int stored_bits(const std::string& name) const;
  // Returns the tensor's place in a buffer that is laid out like weights(); for states and
  // constants, the tensor itself.
  ops::DeviceTensor elsewhere(const std::string& name, const gpu::Buffer& weights) const;
  // Parameters only; has no buffer if the store keeps no gradients.
  const ops::DeviceTensor& gradient(const std::string& name) const;

  // A parameter's place in weights() and gradients(), in scalars.
  struct Parameter {
    std::string name;
    uint32_t begin, count;
    bool decayed;
  };
  const std::vector<Parameter>& parameters() const { return parameters_; }  // ascending

  // A part of weights() and gradients() that the device can bind, in scalars.
  struct Range {
    uint32_t begin, count;
    uint32_t decayed;  // leading ones under weight decay
  };
  std::vector<Range> ranges() const { return ranges(0, count_); }
  // Same for `count` scalars from `begin` on; the ranges count from there.
  std::vector<Range> ranges(uint32_t begin, uint32_t count) const;

  const gpu::Buffer& weights() const { return weights_; }
  const gpu::Buffer& gradients() const { return gradients_; }
  uint32_t count() const { return count_; }      // trainable scalars, with alignment gaps
  uint32_t decayed() const { return decayed_; }  // leading ones under weight decay
  int64_t trainable() const { return trainable_; }

  // Copy a tensor between host and device, however it is stored; they wait for the device.
  Tensor read(const std::string& name) const;
  void write(const std::string& name, const Tensor& from);

  // The same for all. Names are in the order of the graph.
  std::map<std::string, Tensor> download() const;
  // Throws Error(invalid_argument), naming the first tensor that is unknown, has another shape, or
  // is to be quantised and not finite.
  void upload(const std::map<std::string, Tensor>& tensors);
  void check(const std::map<std::string, Tensor>& tensors) const;  // only the checks of upload()
  // Throws Error(invalid_argument) if the weight is quantised and `from` is not finite.
  void check_finite(const std::string& name, const Tensor& from) const;

  // Names of weights: parameters, frozen ones, and states; not of constants.
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& states() const { return states_; }  // of states alone
  bool is_trainable(const std::string& name) const { return gradient_tensors_.contains(name); }
  const gpu::DevicePtr& device() const { return device_; }
  uint64_t reserved_bytes() const { return arena_.reserved_bytes(); }  // of device memory

 private:
  void place(const Graph& graph, bool keeps_gradients);
  bool has(const Graph& graph, const Value& value) const;
  void initialise(const Value& value);

  gpu::DevicePtr device_;
  gpu::Arena arena_;
  uint64_t seed_;
  std::vector<bool> has_;
  gpu::Buffer weights_, gradients_;
  uint32_t count_ = 0, decayed_ = 0;
  int64_t trainable_ = 0;
  std::vector<std::string> names_, states_;
  std::vector<Parameter> parameters_;
  std::map<std::string, ops::DeviceTensor> tensors_, gradient_tensors_;
  std::map<std::string, int> quantized_;  // names and bits
};

// Returns the key of the random numbers that initialise a parameter: Rng(seed,
// parameter_stream(name)).
uint64_t parameter_stream(const std::string& name);

// The layout of a graph's parameters in such a buffer, computed without a device.
struct Layout {
  std::vector<ParameterStore::Parameter> parameters;  // ascending
  uint32_t count = 0;                                 // scalars, with alignment gaps
  uint32_t decayed = 0;                               // leading ones under weight decay
};
// `has`: see ParameterStore.
Layout layout_of(const Graph& graph, const std::vector<bool>& has = {});

// Returns the part of a buffer of scalars at `range`.
inline gpu::Buffer part_of(const gpu::Buffer& buffer, const ParameterStore::Range& range) {
  return buffer.slice(uint64_t{range.begin} * 4, uint64_t{range.count} * 4);
}

// Host <-> device copies through staging memory, for set-up, checkpoints and tests.
Tensor download(const gpu::DevicePtr& device, const ops::DeviceTensor& from,
                DType dtype = DType::f32);
void upload(const gpu::DevicePtr& device, const Tensor& from, const ops::DeviceTensor& to);

}  // namespace etr::graph
