// Optimizers: how gradients change parameters.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "optim/portion.h"

namespace etr::optim {

// State lives in device memory beside the parameters it belongs to.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Appends the commands of one update of the portion's parameters. The learning rate and the number of the
  // update come from the step values, so the recorded commands serve every step.
  virtual void emit(ops::Emitter& emit, const gpu::Buffer& step_values) = 0;

  // Tensors of state by name, as many scalars as the portion has; for checkpoints.
  virtual std::map<std::string, ops::DeviceTensor> state() const = 0;

  virtual uint64_t reserved_bytes() const = 0;  // of device memory
};

struct OptimizerSpec {
  const char* name;
  const char* doc;
  Schema options;
  std::unique_ptr<Optimizer> (*make)(const Options&, const Portion&);
  bool takes_norms = false;  // of tensors, which therefore have to be whole in the portion
  bool may_lack_velocity = false;  // keeps one only where its momentum begins above 0
};

std::span<const OptimizerSpec* const> optimizer_table();
const OptimizerSpec& find_optimizer(const std::string& name);  // Error(not_found) names the nearest

}  // namespace etr::optim
