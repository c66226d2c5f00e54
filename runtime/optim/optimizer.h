// Optimizers: how gradients change parameters, all of them in one dispatch.
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

  // Appends the commands of one update. The learning rate comes from the step values, so the
  // recorded commands serve every step.
  virtual void emit(ops::Emitter& emit, const gpu::Buffer& step_values) = 0;

  // Named state for checkpoints; upload throws Error(invalid_argument) where shapes differ.
  virtual std::map<std::string, Tensor> download() const = 0;
  virtual void upload(const std::map<std::string, Tensor>& state) = 0;
};

struct OptimizerSpec {
  const char* name;
  const char* doc;
  Schema options;
  std::unique_ptr<Optimizer> (*make)(const Options&, const graph::ParameterStore&);
};

std::span<const OptimizerSpec* const> optimizer_table();
const OptimizerSpec& find_optimizer(const std::string& name);  // Error(not_found) names the nearest

}  // namespace etr::optim
