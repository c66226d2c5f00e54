// Learning-rate schedules. Their clock is optimizer steps.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/options.h"

namespace etr::optim {

class Schedule {
 public:
  // `options` follow schedule_schema(); `total_steps` is the planned length of the run (for the
  // decaying kinds whose decay_steps is 0). A run that was made shorter than its warm-up warms up for half of its steps, with a
  // log line. Throws Error(invalid_argument) where decay_steps contradicts warmup_steps, or a length is missing.
  Schedule(const Options& options, int64_t total_steps);

  // The rate of step `step` (0-based). With W = warmup_steps, D = decay_steps, f = end_factor and
  // p = clamp((step - W) / (D - W), 0, 1):
  //   warm-up   rate * (step + 1) / W          while step < W
  //   constant  rate
  //   step      rate * gamma ^ floor(step / step_every)
  //   linear    rate * (1 - (1 - f) p)
  //   cosine    rate * (f + (1 - f) (1 + cos(pi p)) / 2)     (Loshchilov and Hutter 2017)
  //   polynomial    rate * (f + (1 - f) (1 - p)^power)
  //   inverse_sqrt  rate * sqrt(W / max(step, W)), W at least 1      (Vaswani et al. 2017)
  //   one_cycle     up along a cosine from rate * f over the first `rise` of all steps, down along another to
  //                 rate * f^2; there is no warm-up beside it         (Smith and Topin 2019)
  float rate(int64_t step) const;

  // Hyperparameters that change along a line, by the name of their option: what they are at decay_steps. progress() is the
  // share of the way at step `step`.
  const std::map<std::string, double>& ends() const { return ends_; }
  double progress(int64_t step) const;

 private:
  void shorten_warmup(bool decay_is_given, const std::string& kind);

  enum class Kind { constant, step, linear, cosine, polynomial, inverse_sqrt, one_cycle };

  Kind kind_;
  double rate_, end_factor_, gamma_, power_, rise_;
  int64_t warmup_, decay_, step_every_;
  std::map<std::string, double> ends_;
};

Schema schedule_schema();

}  // namespace etr::optim
