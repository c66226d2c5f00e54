// What a run has done so far: events tell it, and checkpoints keep it.
#pragma once

#include <cstdint>

#include "core/json_fwd.h"
#include "train/event.h"
#include "train/inference.h"
#include "train/noise_scale.h"
#include "train/steps.h"

namespace etr::train {

class Progress {
 public:
  uint64_t epoch() const { return epoch_; }          // finished ones
  bool epoch_ended() const { return epoch_ended_; }  // just now: what is due then is not done yet
  void end_epoch();
  void begin_epoch() { epoch_ended_ = false; }

  // The clock of training. It stands still until the first resume_clock().
  double seconds() const;
  void pause_clock();
  void resume_clock();

  // `timed`: the step's device time counts.
  void count(const StepMetrics& metrics, bool timed);

  struct Evaluation {
    uint64_t step = 0;  // 0: there is none yet
    EvalMetrics metrics;
  };
  uint64_t examples() const { return examples_; }        // since the start
  uint64_t fresh() const { return fresh_; }              // of them
  double busy_seconds() const { return busy_seconds_; }  // of the device

  const Evaluation& evaluation() const {
    return evaluation_;
  }  // the latest one that was not stopped
  void keep(const Evaluation& evaluation) { evaluation_ = evaluation; }

  const NoiseScale& noise() const { return noise_; }

  // All that it knows of an event; one right after another repeats its means.
  void fill(Event& event);

  Json json() const;
  // The run goes on from there, its clock standing still. Throws what the JSON library throws where `state` is damaged.
  void load(const Json& state);

 private:
  void take_means(double seconds);

  uint64_t epoch_ = 0;
  bool epoch_ended_ = false;
  Evaluation evaluation_;
  NoiseScale noise_{0.9};  // it grows as a run goes on: the mean follows
  uint64_t examples_ = 0, fresh_ = 0, echoed_ = 0;
  double busy_seconds_ = 0;
  double seconds_before_ = 0;   // of the clock, before it was started last
  int64_t clock_start_ns_ = 0;  // 0: it stands still

  struct {  // steps since the last event
    double loss = 0, accuracy = 0;
    uint64_t steps = 0, examples = 0;
  } since_;
  double event_seconds_ = 0;  // when that was
  struct {
    double loss, accuracy, examples_per_second;
  } means_{};  // of the latest event that had any step
  double learning_rate_ = 0;
};

}  // namespace etr::train
