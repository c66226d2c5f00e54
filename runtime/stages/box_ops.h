// The boxes of a sample, which must follow operations on its image. Field "boxes" is f32 [most, 5]:
// label, left, top, right, bottom, as shares of the image. Rows with a negative label are unused.
// See the stage `boxes`.
#pragma once

#include "pipeline/stage.h"
#include "stages/image_ops.h"

namespace etr::stages {

// To be called after a stage has replaced an image of height x width by its `window` (in pixels,
// may extend beyond the edges). Clips the boxes, and drops those whose centre is outside. Does
// nothing if the sample has no boxes.
void crop_boxes(pipeline::Item& item, int64_t height, int64_t width, const Box& window);

void flip_boxes(pipeline::Item& item, bool vertical);

// For stages that cannot transform boxes: throws Error(unsupported) if the sample has boxes.
void refuse_boxes(const pipeline::Item& item);

}  // namespace etr::stages
