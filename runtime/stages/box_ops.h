// The boxes of a sample, which move with its image. Field "boxes" is f32 [most, 5]: label, left, top, right, bottom,
// shares of the image; a row is no box where its label is negative. See the stage `boxes`.
#pragma once

#include "pipeline/stage.h"
#include "stages/image_ops.h"

namespace etr::stages {

// Behind a stage that has made the image of `window` (in pixels, may reach over the edges) of one of height x width:
// boxes are cut to it, and go where their middle lies outside. Nothing where the sample has none.
void crop_boxes(pipeline::Item& item, int64_t height, int64_t width, const Box& window);

void flip_boxes(pipeline::Item& item, bool vertical);

// For stages that cannot move boxes: Error(unsupported) where the sample has some.
void refuse_boxes(const pipeline::Item& item);

}  // namespace etr::stages
