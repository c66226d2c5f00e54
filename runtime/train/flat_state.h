// Optimizer state with one scalar for each of a store's parameters, in the store's order.
#pragma once

#include <algorithm>

#include "tensor/tensor.h"

namespace etr::train {

inline Tensor flat_zeros(uint32_t count) {
  Tensor out(DType::f32, {count});
  std::ranges::fill(out.mutable_view<float>(), 0.0f);
  return out;
}

// Returns whether the state is flat. Other state, such as a loss scale, is not.
inline bool is_flat(const Tensor& state, uint32_t count) {
  return state.dtype() == DType::f32 && state.shape() == Shape{count};
}

}  // namespace etr::train
