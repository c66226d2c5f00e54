// Local SGD with an outer step (DiLoCo): ranks train by themselves, and every so many steps agree on weights.
//
// After `every` steps of its own optimizer each rank has the weights x_i. The mean of their distances from the weights x that all
// had before is the outer gradient of an SGD with Nesterov's momentum:
//
//   d = mean(x - x_i),  m = momentum m + d,  x = x - rate (d + momentum m)
//
// (Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023. With a rate of 1 and no momentum x
// becomes the mean of the x_i: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017.)
// The inner optimizers' states stay each rank's own.
#pragma once

#include <vector>

#include "parallel/sharing.h"

namespace etr::parallel {

struct LocalSgdOptions {
  int64_t every = 500;  // steps
  double rate = 0.7;
  double momentum = 0.9;
};

// All ranks make the same calls. `group` is used by this object alone.
class LocalSgd : public Sharing {
 public:
  LocalSgd(exchange::Group group, LocalSgdOptions options);

  int rank() const override { return group_.rank(); }
  void abort(const std::string& reason) override { group_.abort(reason); }
  void share(graph::ParameterStore& store) override;
  void replace_weights(graph::ParameterStore& store, const std::function<void()>& set) override;
  bool exchange_due() override;
  void exchange(graph::ParameterStore& store) override;

  // Also takes an outer step, unless one has just been taken: what is evaluated and saved is x.
  void average_states(graph::ParameterStore& store) override;

  void finish(graph::ParameterStore& store, bool all_end) override;  // likewise

  // x is in the weights; the momentum is kept beside them.
  void save(checkpoint::Files& files) const override;
  void load(const checkpoint::Files& files, const std::string& origin) override;

 private:
  exchange::Group group_;
  const LocalSgdOptions options_;
  uint64_t steps_then_ = 0;  // of the latest outer step
  std::vector<float> weights_, momentum_;
};

}  // namespace etr::parallel
