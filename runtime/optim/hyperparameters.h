// Numbers of an optimizer and of a loss that may differ from step to step. They travel in the step's values, so that
// recorded commands serve any of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "optim/schedule.h"
#include "optim/update.h"

namespace etr::optim {

class Hyperparameters {
 public:
  // `label_smoothing`: none where the loss has none. `schedule` may let some change over the run: Error(invalid_argument)
  // where the optimizer or the loss has no such number.
  explicit Hyperparameters(const UpdateSpec& update, std::optional<double> label_smoothing = {},
                           std::optional<Schedule> schedule = {});

  // From step `step` on (0-based); the schedule no longer changes this one. `name` is that of the option: momentum, beta1, beta2,
  // decay, weight_decay, label_smoothing. Error(not_found) lists those that there are; Error(invalid_argument) where the
  // value is out of range, or needs state that the optimizer does not keep.
  void set(const std::string& name, double value, uint64_t step = 0);

  // What was set: values by the step from which they count, by name. restore() puts others in their place, and throws as set() does.
  using Changes = std::map<std::string, std::map<uint64_t, double>>;
  const Changes& were_set() const { return set_; }
  void restore(const Changes& were_set);

  // Of the step after this.
  void put(ops::StepValues& values, const Passed& passed) const;
  double value(const std::string& name, const Passed& passed) const;

 private:
  bool has(const std::string& name) const;
  void require(const std::string& name) const;
  void check(const std::string& name, double value) const;
  double value_or(const std::string& name, double otherwise, const Passed& passed) const;

  const OptimizerSpec* optimizer_;
  Options options_;
  std::optional<double> label_smoothing_;
  std::optional<Schedule> schedule_;
  uint64_t accumulate_;  // steps of an update, which are a schedule's clock
  Changes set_;
};

}  // namespace etr::optim
