// Optimizers: how gradients change parameters.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "optim/portion.h"

namespace etr::optim {

// Ranks that make an update together, of which this one has a part of the tensors or of the gradients. What is empty needs no others.
struct Peers {
  // Appends what makes the norm of this rank's gradients, f32 [1], that of all gradients.
  std::function<void(const gpu::Buffer& norm)> join_norm = {};
  // Appends what makes sums of squares over this rank's slices of tensors those over the whole tensors.
  std::function<void(const gpu::Buffer& squares)> join_squares = {};
  // Whether this rank's part of a parameter counts in these; where ranks have the same tensor, it is one's that does.
  std::function<bool(const std::string& parameter)> counts = {};
  // Appends what brings the weights here that other ranks have updated.
  std::function<void()> bring_weights = {};
};

// State lives in device memory beside the parameters it belongs to.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Appends the commands of one update of the portion's parameters. The learning rate and the number of the
  // update come from the step values, so the recorded commands serve every step.
  virtual void emit(ops::Emitter& emit, const gpu::Buffer& step_values, const Peers& peers) = 0;

  // Tensors of state by name, as many scalars as the portion has; for checkpoints.
  virtual std::map<std::string, ops::DeviceTensor> state() const = 0;

  virtual uint64_t reserved_bytes() const = 0;  // of device memory
};

struct OptimizerSpec {
  const char* name;
  const char* doc;
  Schema options;
  std::unique_ptr<Optimizer> (*make)(const Options&, const Portion&);
  bool takes_norms = false;        // of tensors, which therefore have to be whole in the portion
  bool may_lack_velocity = false;  // keeps one only where its momentum begins above 0
};

std::span<const OptimizerSpec* const> optimizer_table();
const OptimizerSpec& find_optimizer(const std::string& name);  // Error(not_found) names the nearest

}  // namespace etr::optim
