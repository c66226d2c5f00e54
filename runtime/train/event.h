// What a run tells its caller.
#pragma once

#include <cstdint>
#include <string>

namespace etr::train {

enum class EventKind : int32_t { progress = 0, evaluation = 1, checkpoint = 2, end = 3 };

// What a run looks like at one moment. Means are over the steps since the last event of any kind.
struct Event {
  EventKind kind = EventKind::progress;
  uint64_t step = 0, epoch = 0;
  uint64_t total_steps = 0;  // planned; 0: unknown
  double seconds = 0;        // of training: evaluation and checkpoints stop this clock
  double loss = 0, accuracy = 0;
  double learning_rate = 0;
  double examples_per_second = 0;
  double device_wait_share = 0;  // of training time so far in which the device had nothing to do
  uint64_t examples = 0, fresh = 0, echoed = 0;  // since the start
  int64_t bad_records = 0;
  double eval_loss = 0, eval_accuracy = 0;  // of the latest evaluation
  bool target_reached = false;
  std::string path;  // checkpoint: where it was written
};

}  // namespace etr::train
