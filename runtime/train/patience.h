// Waits for data that a stop ends.
#pragma once

#include <functional>

#include "pipeline/pipeline.h"

namespace etr::train {

constexpr double kPatience = 0.1;  // seconds that a wait lasts before its end is looked for

// Waits until there is something for next(), as long as `left` gives more than 0 seconds: it is asked every tenth of a
// second, so that data which does not come holds back neither a stop nor an event. False where nothing came.
bool wait_for_data(pipeline::Pipeline& pipeline, const std::function<double()>& left);

}  // namespace etr::train
