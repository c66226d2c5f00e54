// One byte budget for a pipeline: what its buffers will hold, and what is left for its queues.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/segment.h"

namespace etr::pipeline {

// A stage of the pipeline to be planned for.
struct BudgetStage {
  std::string name;
  StageKind kind = StageKind::map;
  std::unique_ptr<Stage> stage;  // an instance of its own, to try samples on
};

struct BudgetRequest {
  std::vector<BudgetStage> stages;
  std::vector<QueueLimits> limits;  // of each segment, without a budget
  int64_t bytes = 0;
  const Interrupt* interrupt = nullptr;  // ends the trials with Error(cancelled)
  int64_t prefetch = 1;  // finished items that may wait for the consumer, and one that it holds
};

// The limits of each segment under the budget. Reads a few samples and takes them through the stages, to learn
// how large they are at each place. Throws Error(invalid_argument) that says what needs how much where the
// budget cannot hold the buffers and the least that the queues need.
//
// Buffers and queues get 80 % of the budget, and batch memory that is kept for reuse 5 %: the rest is the allocators' and
// the decoders' own. A sample much larger than those tried can exceed its queue's share by one message.
std::vector<QueueLimits> plan_budget(BudgetRequest request);

}  // namespace etr::pipeline
