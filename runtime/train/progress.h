// The progress of a run, which events report and checkpoints keep.
#pragma once

#include <cstdint>

#include "core/json_fwd.h"
#include "core/json_members.h"
#include "train/event.h"
#include "train/inference.h"
#include "train/noise_scale.h"
#include "train/steps.h"

namespace etr::train {

class Progress {
 public:
  uint64_t epoch() const { return epoch_; }  // finished epochs
  // Returns whether an epoch has just ended, and what is due then has not been done yet.
  bool epoch_ended() const { return epoch_ended_; }
  void end_epoch();
  void begin_epoch() { epoch_ended_ = false; }

  // The training clock. It stands still until the first resume_clock().
  double seconds() const;
  void pause_clock();
  void resume_clock();

  // `timed`: whether the step's time counts.
  void count(const StepMetrics& metrics, bool timed);

  struct Evaluation {
    uint64_t step = 0;  // 0: there is none yet
    EvalMetrics metrics;
  };
  uint64_t examples() const { return examples_; }        // since the start
  uint64_t fresh() const { return fresh_; }              // of the examples
  double busy_seconds() const { return busy_seconds_; }  // of the device

  // The latest evaluation that was not stopped.
  const Evaluation& evaluation() const { return evaluation_; }
  void keep(const Evaluation& evaluation) { evaluation_ = evaluation; }

  const NoiseScale& noise() const { return noise_; }

  // Fills in everything of an event that is known here. An event right after another one repeats
  // its means.
  void fill(Event& event);

  Json json() const;
  // Continues from what json() returned, with the clock standing still. Throws as JsonMembers does.
  void load(const JsonMembers& state);

 private:
  void take_means(double seconds);

  uint64_t epoch_ = 0;
  bool epoch_ended_ = false;
  Evaluation evaluation_;
  NoiseScale noise_{0.9};  // the scale grows during a run, so the mean follows it
  uint64_t examples_ = 0, fresh_ = 0, echoed_ = 0;
  double busy_seconds_ = 0;
  double seconds_before_ = 0;   // of the clock, before it was last started
  int64_t clock_start_ns_ = 0;  // 0: the clock stands still

  struct {  // steps since the last event
    double loss = 0, accuracy = 0;
    uint64_t steps = 0, timed_examples = 0;
  } since_;
  double event_seconds_ = 0;  // the time of that event
  struct {
    double loss, accuracy, examples_per_second;
  } means_{};  // of the latest event with any step
  double learning_rate_ = 0;
};

}  // namespace etr::train
