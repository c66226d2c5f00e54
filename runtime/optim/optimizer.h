// Optimizers: how gradients change parameters.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "graph/parameters.h"

namespace etr::optim {

// State lives in device memory beside the parameters it belongs to.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Appends the commands of one update of all parameters. The learning rate and the number of the
  // update come from the step values, so the recorded commands serve every step.
  virtual void emit(ops::Emitter& emit, const gpu::Buffer& step_values) = 0;

  // Tensors of state by name, as many scalars as the store has parameters; for checkpoints.
  virtual std::map<std::string, ops::DeviceTensor> state() const = 0;
};

struct OptimizerSpec {
  const char* name;
  const char* doc;
  Schema options;
  std::unique_ptr<Optimizer> (*make)(const Options&, const graph::ParameterStore&);
  bool takes_norms = false;  // of tensors, which therefore have to be whole
  bool may_lack_velocity = false;  // keeps one only where its momentum begins above 0
};

std::span<const OptimizerSpec* const> optimizer_table();
const OptimizerSpec& find_optimizer(const std::string& name);  // Error(not_found) names the nearest

}  // namespace etr::optim
