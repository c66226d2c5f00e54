// Forward and backward passes and updates, one by one, for training loops of the program's own: a
// loss that the program computes, several models whose gradients flow into each other.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "pipeline/item.h"
#include "tensor/tensor.h"
#include "train/plans.h"

namespace etr::train {

// The gradients are those in the store of the weights. Used by one thread.
class Passes {
 public:
  static constexpr size_t kMost = 4;  // shapes of batches whose plans are kept

  // All three must outlive the passes.
  Passes(gpu::Kernels& kernels, const nn::Model& model, Weights& weights);
  ~Passes();

  // Computes the output of the model's last layer for a batch, in training mode: f32 [N, ...], on
  // exactly the batch's rows. Keeps what backward() needs. `input_gradients`: backward() will
  // return the inputs' gradients, too. Waits for the device.
  Tensor forward(const pipeline::Item& batch, bool input_gradients, const ops::StepValues& values);

  // Computes the gradients of the parameters from the gradient of the latest output, which has the
  // output's shape. May be called once for each output. The gradients replace the earlier ones, or
  // are added to them (`accumulate`). If the inputs' gradients were asked for, waits for them and
  // returns those that are f32, by name; otherwise returns nothing, while the device works.
  std::vector<pipeline::Field> backward(const Tensor& output_gradient, bool accumulate);

  // Updates the weights with the gradients, and waits. Returns whether the gradients were finite;
  // if not, the parameters are as they were.
  bool update(const ops::StepValues& values);

  // Returns whether backward() may be called: there is an output that it has not been called for,
  // and the weights have not changed since.
  bool has_output() const { return has_output_ && weights_.age == output_age_; }
  void forget_output() { has_output_ = false; }
  bool gives_input_gradients() const;  // has_output(), and it would return those
  const Shape& output_shape() const { return output_shape_; }

  void wait();

 private:
  struct Shaped;

  Shaped& shaped_for(const pipeline::Item& batch, bool input_gradients);
  gpu::CommandList added(const gpu::CommandList& backward);

  gpu::Kernels& kernels_;
  const nn::Model& model_;
  Weights& weights_;
  gpu::Arena memory_;
  gpu::Buffer earlier_;                        // gradients, while backward() computes others to add
  std::list<std::unique_ptr<Shaped>> shaped_;  // most recently used first
  Shape output_shape_;
  bool has_output_ = false;
  uint64_t output_age_ = 0;  // Weights::age after the forward pass
};

}  // namespace etr::train
