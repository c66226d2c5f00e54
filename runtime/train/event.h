// Events of a run.
#pragma once

#include <cstdint>
#include <string>

namespace etr::train {

enum class EventKind : int32_t { progress = 0, evaluation = 1, checkpoint = 2, end = 3 };

// The state of a run at one moment. Means are over the steps since the previous event of any kind.
struct Event {
  EventKind kind = EventKind::progress;
  uint64_t step = 0, epoch = 0;
  uint64_t total_steps = 0;  // planned; 0: unknown
  double seconds = 0;        // of training; the clock stops for evaluations and checkpoints
  double loss = 0, accuracy = 0;
  double learning_rate = 0;
  double examples_per_second = 0;  // without the first step, whose time does not count
  double device_wait_share = 0;  // share of the training time in which the device was idle
  uint64_t examples = 0, fresh = 0, echoed = 0;  // since the start
  int64_t bad_records = 0;
  double eval_loss = 0, eval_accuracy = 0;  // of the latest evaluation
  bool target_reached = false;
  std::string path;  // of a checkpoint: where it was written
};

}  // namespace etr::train
