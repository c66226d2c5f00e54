// What of a model's parameters an update works on.
#pragma once

#include <vector>

#include "graph/parameters.h"

namespace etr::optim {

// Neighbouring parameters of a store, and their gradients, which may lie elsewhere. Ranges are counted from the portion's begin.
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

// One rank's part of an update that several ranks share out, in scalars of the store's buffers.
struct Share {
  static constexpr uint32_t kAligned = 64;  // what both are multiples of: devices can bind that
  uint32_t begin = 0, count = 0;
  bool only_gradients = false;  // it has the gradients of these parameters alone
};

}  // namespace etr::optim
