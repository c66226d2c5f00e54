// Numbers of an optimizer and a loss that may change from step to step. They are passed in the
// step's values, so that recorded commands work with any of them.
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
  // `label_smoothing`: empty if the loss has none. `schedule` may change some numbers over the run;
  // throws Error(invalid_argument) if the optimizer or the loss does not have such a number.
  explicit Hyperparameters(const UpdateSpec& update, std::optional<double> label_smoothing = {},
                           std::optional<Schedule> schedule = {});

  // Sets a number from step `step` (0-based) on; the schedule no longer changes it. `name` is the
  // option's: momentum, beta1, beta2, decay, weight_decay, label_smoothing. Throws
  // Error(not_found), listing the available names, or Error(invalid_argument) if the value is out
  // of range or needs state that the optimizer does not keep.
  void set(const std::string& name, double value, uint64_t step = 0);

  // The values that were set, by name and by the step from which they apply. restore() replaces
  // them and throws as set() does.
  using Changes = std::map<std::string, std::map<uint64_t, double>>;
  const Changes& were_set() const { return set_; }
  void restore(const Changes& were_set);

  // Fill in, or return, what the next step after `passed` uses.
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
  uint64_t accumulate_;  // steps per update
  Changes set_;
};

}  // namespace etr::optim
