// Local SGD with an outer step (DiLoCo): ranks train on their own, and agree on weights at
// intervals.
//
// After `every` steps of its own optimizer each rank has the weights x_i. The mean of their
// distances from the common weights x of the previous exchange is the outer gradient of an SGD with
// Nesterov momentum:
//
//   d = mean(x - x_i),  m = momentum m + d,  x = x - rate (d + momentum m)
//
// (Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023.
// With a rate of 1 and no momentum x becomes the mean of the x_i: McMahan et al.,
// "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017.) Each rank
// keeps its inner optimizer's state.
#pragma once

#include <vector>

#include "parallel/sharing.h"

namespace etr::parallel {

struct LocalSgdOptions {
  int64_t every = 500;  // steps
  double rate = 0.7;
  double momentum = 0.9;
};

// All ranks make the same calls. Only this object uses `group`.
class LocalSgd : public Sharing {
 public:
  LocalSgd(exchange::Group group, LocalSgdOptions options);

  int rank() const override { return group_.rank(); }
  void abort(const std::string& reason) override { group_.abort(reason); }
  void share(graph::ParameterStore& store) override;
  void replace_weights(graph::ParameterStore& store, const std::function<void()>& set) override;
  bool exchange_due() override;
  void exchange(graph::ParameterStore& store) override;

  // Also takes an outer step, unless one was just taken, so that x is evaluated and saved.
  void average_states(graph::ParameterStore& store) override;

  void finish(graph::ParameterStore& store, bool all_end) override;  // also takes an outer step

  // The checkpoint's weights are x; the momentum is stored beside them.
  void save(checkpoint::Files& files) const override;
  void load(const checkpoint::Files& files, const std::string& origin) override;

 private:
  // Error(invalid_argument) unless it has a number for each weight.
  void check_size(const std::vector<float>& momentum) const;

  exchange::Group group_;
  const LocalSgdOptions options_;
  uint64_t steps_then_ = 0;  // the step count at the latest outer step
  std::vector<float> weights_, momentum_;
};

}  // namespace etr::parallel
