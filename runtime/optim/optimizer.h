// Optimizers: how gradients change parameters.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "optim/portion.h"

namespace etr::optim {

// Ranks that make an update together, each with a part of the tensors or of the gradients. An empty
// function means that the other ranks are not needed for it.
struct Peers {
  // Appends commands that turn the norm of this rank's gradients, f32 [1], into that of all
  // gradients.
  std::function<void(const gpu::Buffer& norm)> join_norm = {};
  // Appends commands that turn sums of squares over this rank's slices of tensors into those over
  // the whole tensors.
  std::function<void(const gpu::Buffer& squares)> join_squares = {};
  // Returns whether this rank's part of a parameter counts in these sums. If several ranks hold the
  // same tensor, exactly one counts it.
  std::function<bool(const std::string& parameter)> counts = {};
  // Appends commands that receive the weights which other ranks have updated.
  std::function<void()> gather_weights = {};
};

// State lives in device memory beside the parameters it belongs to.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Appends the commands of one update of the portion's parameters. The learning rate and the
  // number of the update come from the step values, so the recorded commands work for every step.
  virtual void emit(ops::Emitter& emit, const gpu::Buffer& step_values, const Peers& peers) = 0;

  // State tensors by name, with as many scalars as the portion, for checkpoints.
  virtual std::map<std::string, ops::DeviceTensor> state() const = 0;

  virtual uint64_t reserved_bytes() const = 0;  // of device memory
};

struct OptimizerSpec {
  const char* name;
  const char* doc;
  Schema options;
  std::unique_ptr<Optimizer> (*make)(const Options&, const Portion&);
  bool takes_norms = false;        // needs the norms of tensors, which must be whole in the portion
  bool may_lack_velocity = false;  // keeps a velocity only if momentum is initially above 0
};

std::span<const OptimizerSpec* const> optimizer_table();
// Throws Error(not_found), naming the nearest.
const OptimizerSpec& find_optimizer(const std::string& name);

}  // namespace etr::optim
