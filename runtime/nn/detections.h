// Decodes a detector's output into boxes.
#pragma once

#include "tensor/tensor.h"

namespace etr::nn {

struct DetectionOptions {
  float score_threshold = 0.5f;  // least probability of the class for a box to count
  // Largest intersection over union of two boxes of a class; beyond it only the better box stays.
  float iou_threshold = 0.45f;
  int64_t max_detections = 100;  // per image
};

// Decodes a detector's output [N, anchors, 1 + classes + 8] (layer box_head). Returns f32 [N,
// max_detections, 6]: each row holds label, left, top, right, bottom (as fractions of the image)
// and score, the best first. Rows beyond the boxes found have the label -1. Throws
// Error(invalid_argument).
Tensor detections(const Tensor& output, const DetectionOptions& options);

}  // namespace etr::nn
