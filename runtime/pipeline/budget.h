// Divides a byte budget between a pipeline's buffers and its queues.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pipeline/segment.h"

namespace etr::pipeline {

// A stage to plan for.
struct BudgetStage {
  std::string name;
  AnyStage stage;  // a separate instance for trial samples
};

struct BudgetRequest {
  // Makes the stages as they are under a budget of `bytes`.
  std::function<std::vector<BudgetStage>(int64_t bytes)> make;
  std::vector<QueueLimits> limits;  // of each segment, without a budget
  int64_t bytes = 0;
  const Interrupt* interrupt = nullptr;  // ends the trials with Error(cancelled)
  int64_t prefetch = 1;  // finished items that may wait for the consumer, besides the one it holds
};

// Returns the limits of each segment under the budget. Reads a few samples and passes them through
// the stages to measure their size after each stage. If the budget is too small for the buffers and
// for minimal queues, throws Error(invalid_argument) that says how much each needs, and what budget
// is enough: that was tried in the same way, because some sources hold more of a larger one.
//
// Buffers and queues get 80 % of the budget, and batch memory kept for reuse gets 5 %. The rest is
// left to the allocators and decoders. A sample much larger than those tried can exceed its queue's
// share by one message.
std::vector<QueueLimits> plan_budget(BudgetRequest request);

}  // namespace etr::pipeline
