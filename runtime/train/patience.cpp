#include "train/patience.h"

#include <algorithm>

namespace etr::train {

bool wait_for_data(pipeline::Pipeline& pipeline, const std::function<double()>& left) {
  while (true) {
    const double seconds = left();
    if (pipeline.wait(std::clamp(seconds, 0.0, kPatience))) return true;
    if (seconds <= 0) return false;
  }
}

}  // namespace etr::train
