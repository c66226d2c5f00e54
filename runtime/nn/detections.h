// What a detector has found: its output as boxes.
#pragma once

#include "tensor/tensor.h"

namespace etr::nn {

struct DetectionOptions {
  float least_score = 0.5f;  // probability of the class, from which a box counts
  float most_overlap =
      0.45f;  // intersection over union of two boxes of a class, of which the better one stays
  int64_t most = 100;  // boxes of an image
};

// Of a detector's output [N, anchors, 1 + classes + 8] (layer box_head): f32 [N, most, 6], in each row label, left,
// top, right, bottom (shares of the image) and score, the best first; rows beyond those found have the label -1.
// Throws Error(invalid_argument).
Tensor detections(const Tensor& output, const DetectionOptions& options);

}  // namespace etr::nn
