#include "train/progress.h"

#include <algorithm>

#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"

namespace etr::train {
namespace {

// Checkpoints of earlier versions do not have it.
Progress::Evaluation evaluation_of(const JsonMembers& state) {
  return {state.count("step"),
          {static_cast<int64_t>(state.count("samples")), state.real_or_nan("loss"),
           state.real_or_nan("accuracy")}};
}

}  // namespace

void Progress::end_epoch() {
  ++epoch_;
  epoch_ended_ = true;
}

double Progress::seconds() const {
  return seconds_before_ + (clock_start_ns_ ? seconds_between(clock_start_ns_, now_ns()) : 0);
}

void Progress::pause_clock() {
  seconds_before_ = seconds();
  clock_start_ns_ = 0;
}

void Progress::resume_clock() {
  if (clock_start_ns_ == 0) clock_start_ns_ = now_ns();
}

void Progress::count(const StepMetrics& metrics, bool timed) {
  examples_ += static_cast<uint64_t>(metrics.counts.samples);
  fresh_ += static_cast<uint64_t>(metrics.counts.fresh);
  echoed_ += static_cast<uint64_t>(metrics.counts.echoed);
  if (timed) {
    busy_seconds_ += metrics.busy_seconds;
    since_.timed_examples += static_cast<uint64_t>(metrics.counts.samples);
  }
  learning_rate_ = static_cast<double>(metrics.learning_rate);
  since_.loss += static_cast<double>(metrics.loss);
  since_.accuracy += static_cast<double>(metrics.accuracy);
  ++since_.steps;
  if (metrics.noise) noise_.add(*metrics.noise);
}

void Progress::take_means(double seconds) {
  if (since_.steps == 0) return;
  const auto steps = static_cast<double>(since_.steps);
  means_ = {since_.loss / steps, since_.accuracy / steps,
            static_cast<double>(since_.timed_examples) / std::max(seconds - event_seconds_, 1e-9)};
  since_ = {};
  event_seconds_ = seconds;
}

void Progress::fill(Event& event) {
  event.epoch = epoch_;
  event.seconds = seconds();
  take_means(event.seconds);
  event.loss = means_.loss;
  event.accuracy = means_.accuracy;
  event.examples_per_second = means_.examples_per_second;
  event.learning_rate = learning_rate_;
  if (event.seconds > 0)
    event.device_wait_share = std::clamp(1 - busy_seconds_ / event.seconds, 0.0, 1.0);
  event.examples = examples_;
  event.fresh = fresh_;
  event.echoed = echoed_;
  event.eval_loss = evaluation_.metrics.loss;
  event.eval_accuracy = evaluation_.metrics.accuracy;
}

Json Progress::json() const {
  Json state{{"epoch", epoch_},
             {"epoch_ended", epoch_ended_},
             {"examples", examples_},
             {"fresh", fresh_},
             {"echoed", echoed_},
             {"seconds", seconds()},
             {"busy_seconds", busy_seconds_}};
  if (const auto& [step, metrics] = evaluation_; step > 0)
    state["evaluation"] = {{"step", step},
                           {"samples", metrics.samples},
                           {"loss", metrics.loss},
                           {"accuracy", metrics.accuracy}};
  if (noise_.count()) state["noise"] = noise_.json();
  return state;
}

void Progress::load(const JsonMembers& state) {
  since_ = {};
  clock_start_ns_ = 0;
  epoch_ = state.count("epoch");
  // Absent in earlier versions.
  epoch_ended_ = state.has("epoch_ended") && state.flag("epoch_ended");
  examples_ = state.count("examples");
  fresh_ = state.count("fresh");
  echoed_ = state.count("echoed");
  seconds_before_ = event_seconds_ = state.number("seconds");
  busy_seconds_ = state.number("busy_seconds");
  evaluation_ = state.has("evaluation") ? evaluation_of(state.part("evaluation")) : Evaluation();
  noise_ = NoiseScale(0.9);
  if (state.has("noise")) noise_.load(state.part("noise"));
}

}  // namespace etr::train
