// Learning-rate schedules. Their clock counts optimizer steps or fresh examples.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/options.h"

namespace etr::optim {

// The progress of a run.
struct Passed {
  Passed(uint64_t of_steps = 0, uint64_t of_fresh = 0, uint64_t of_examples = 0)
      : steps(of_steps), fresh(of_fresh), examples(of_examples) {}

  uint64_t steps;     // batches trained on
  uint64_t fresh;     // examples in them, without repetitions by an echo node
  uint64_t examples;  // all examples in them
};

// Returns whether a schedule with these options counts fresh examples (option "clock").
bool counts_fresh(const Options& schedule);

class Schedule {
 public:
  // `options` follow schedule_schema(). `length` is the planned length of the run on the schedule's
  // clock, for decaying kinds whose decay_steps is 0. If the run is no longer than its warm-up, the
  // warm-up is shortened to half of the run and a warning is logged. Throws Error(invalid_argument)
  // if decay_steps contradicts warmup_steps, or a length is missing.
  Schedule(const Options& options, int64_t length);

  // Returns the clock's value after `passed`, with `accumulate` batches per optimizer step.
  int64_t clock(const Passed& passed, uint64_t accumulate) const;
  bool counts_fresh() const { return counts_fresh_; }

  // Returns the rate of the step in which the clock goes from `at` (0-based) to `at` + `ticks`.
  // With W = warmup_steps, D = decay_steps, f = end_factor and p = clamp((at - W) / (D - W), 0, 1):
  //   warm-up   rate * min(1, (at + ticks) / W)    while at < W
  //   constant  rate
  //   step      rate * gamma ^ floor(at / step_every)
  //   linear    rate * (1 - (1 - f) p)
  //   cosine    rate * (f + (1 - f) (1 + cos(pi p)) / 2)     (Loshchilov and Hutter 2017)
  //   polynomial    rate * (f + (1 - f) (1 - p)^power)
  //   inverse_sqrt  rate * sqrt(W / max(at, W)), W at least 1      (Vaswani et al. 2017)
  //   one_cycle     up along a cosine from rate * f over the first `rise` of all steps, down along
  //                 another to rate * f^2, without a warm-up         (Smith and Topin 2019)
  // Without echo both clocks give the same rates if example counts are the batch size times the
  // step counts.
  float rate(int64_t at, int64_t ticks = 1) const;

  // Returns the factor of the rate for echoed examples, (fresh / examples)^echo_power, after
  // `passed`. With K uses of each example this is K^-echo_power. By the theory of repeated batches
  // the step size is proportional to 1/K where noise limits it, and independent of K where
  // curvature does (Agarwal et al. 2020, arXiv 2010.13639).
  double echo_correction(const Passed& passed) const;

  // Hyperparameters that change linearly: their values at decay_steps, by the name of the option.
  // progress() returns the fraction of the change that is complete when the clock shows `at`.
  const std::map<std::string, double>& ends() const { return ends_; }
  double progress(int64_t at) const;

 private:
  void shorten_warmup(bool decay_is_given, const std::string& kind);

  enum class Kind { constant, step, linear, cosine, polynomial, inverse_sqrt, one_cycle };

  Kind kind_;
  bool counts_fresh_;
  double rate_, end_factor_, gamma_, power_, rise_, echo_power_;
  int64_t warmup_, decay_, step_every_;
  std::map<std::string, double> ends_;
};

Schema schedule_schema();

}  // namespace etr::optim
