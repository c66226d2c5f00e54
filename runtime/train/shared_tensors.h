// A model's tensors as ranks share them, and whole: what is read, set, saved and loaded is whole.
#pragma once

#include <string>

#include "graph/parameters.h"
#include "graph/slice.h"
#include "parallel/tensor_parallel.h"

namespace etr::train {

// Where a tensor is gathered, all ranks call, in the same order, while no step is in flight.
class SharedTensors {
 public:
  // `whole`: how the parameters lie that these ranks have together. `ranks` outlives this.
  SharedTensors(graph::Layout whole, graph::Slices slices, parallel::TensorParallel& ranks);

  const graph::Slices& slices() const { return slices_; }

  Tensor whole(const std::string& name, const Tensor& own);
  // Error(invalid_argument) where a tensor that is shared out has another shape than the model's.
  Tensor own(const std::string& name, const Tensor& whole) const;

  // State of an optimizer, which is laid out like a store's weights. Others, such as a loss scale, are as they were.
  Tensor whole_state(const Tensor& own, const graph::ParameterStore& store);
  Tensor own_state(const Tensor& whole, const graph::ParameterStore& store) const;

 private:
  const graph::Layout layout_;  // of whole parameters
  const graph::Slices slices_;
  parallel::TensorParallel& ranks_;
};

}  // namespace etr::train
