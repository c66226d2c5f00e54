// Waits for data in a way that can be stopped.
#pragma once

#include <functional>

#include "pipeline/pipeline.h"

namespace etr::train {

constexpr double kPatience = 0.1;  // seconds of one wait, then it looks whether to stop

// Waits until next() has something, as long as `left` returns more than 0 seconds. `left` is called
// every tenth of a second, so missing data delays neither a stop nor an event. Returns false if
// nothing came.
bool wait_for_data(pipeline::Pipeline& pipeline, const std::function<double()>& left);

}  // namespace etr::train
