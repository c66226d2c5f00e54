#include "parallel/schedule.h"

#include <algorithm>

#include "core/error.h"

namespace etr::parallel {

using graph::Pass;
using Direction = Pass::Direction;

Schedule schedule_named(const std::string& name) {
  if (name == "gpipe") return Schedule::gpipe;
  if (name == "1f1b") return Schedule::one_forward_one_backward;
  fail(Code::invalid_argument, "'", name,
       "' is not a schedule of micro-batches: use gpipe or 1f1b");
}

std::vector<Pass> forward_order(int micro_batches) {
  std::vector<Pass> out;
  for (int i = 0; i < micro_batches; ++i) out.push_back({Direction::forward, i});
  return out;
}

int forward_ahead(Schedule schedule, int stage, int stages, int micro_batches) {
  return schedule == Schedule::gpipe ? micro_batches : std::min(stages - stage, micro_batches);
}

std::vector<Pass> training_order(Schedule schedule, int stage, int stages, int micro_batches) {
  const int ahead = forward_ahead(schedule, stage, stages, micro_batches);
  std::vector<Pass> out = forward_order(ahead);
  for (int i = 0; i < micro_batches; ++i) {
    out.push_back({Direction::backward, i});
    if (ahead + i < micro_batches) out.push_back({Direction::forward, ahead + i});
  }
  return out;
}

}  // namespace etr::parallel
