// Converts a model's tensors between the slices of ranks and whole tensors. What is read, set,
// saved and loaded is whole.
#pragma once

#include <string>

#include "graph/parameters.h"
#include "graph/slice.h"
#include "parallel/tensor_parallel.h"

namespace etr::train {

// Functions that gather a tensor are collective: all ranks call them in the same order, while no
// step is in flight.
class SharedTensors {
 public:
  // `whole`: the layout of the parameters of all these ranks together. `ranks` must outlive this
  // object.
  SharedTensors(graph::Layout whole, graph::Slices slices, parallel::TensorParallel& ranks);

  const graph::Slices& slices() const { return slices_; }

  Tensor whole(const std::string& name, const Tensor& own);
  // Error(invalid_argument) if a divided tensor has another shape than the model's.
  Tensor own(const std::string& name, const Tensor& whole) const;

  // Convert optimizer state laid out like a store's weights. Other state, such as a loss scale, is
  // unchanged.
  Tensor whole_state(const Tensor& own, const graph::ParameterStore& store);
  Tensor own_state(const Tensor& whole, const graph::ParameterStore& store) const;

 private:
  const graph::Layout layout_;  // of the whole parameters
  const graph::Slices slices_;
  parallel::TensorParallel& ranks_;
};

}  // namespace etr::train
