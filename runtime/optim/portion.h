// The part of a model's parameters that an update works on.
#pragma once

#include <vector>

#include "graph/parameters.h"

namespace etr::optim {

// Contiguous parameters of a store and their gradients, which may lie elsewhere. Ranges count from
// the portion's begin.
class Portion {
 public:
  Portion(const graph::ParameterStore& store)  // all of them
      : Portion(store, 0, store.count(), store.gradients()) {}
  Portion(const graph::ParameterStore& store, uint32_t begin, uint32_t count, gpu::Buffer gradients)
      : store_(&store),
        begin_(begin),
        count_(count),
        weights_(store.weights().slice(uint64_t{begin} * 4, uint64_t{count} * 4)),
        gradients_(gradients) {}

  const graph::ParameterStore& store() const { return *store_; }
  const gpu::DevicePtr& device() const { return store_->device(); }
  uint32_t count() const { return count_; }  // scalars
  const gpu::Buffer& weights() const { return weights_; }
  const gpu::Buffer& gradients() const { return gradients_; }
  std::vector<graph::ParameterStore::Range> ranges() const {
    return store_->ranges(begin_, count_);
  }

 private:
  const graph::ParameterStore* store_;
  uint32_t begin_, count_;
  gpu::Buffer weights_, gradients_;
};

// One rank's part of an update that is divided among ranks, in scalars of the store's buffers.
struct Share {
  // `begin` and `count` are multiples of it, so that devices can bind them.
  static constexpr uint32_t kAligned = 64;
  uint32_t begin = 0, count = 0;
  bool only_gradients = false;  // the rank holds gradients of these parameters only
};

}  // namespace etr::optim
