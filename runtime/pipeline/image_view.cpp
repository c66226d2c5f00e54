#include "pipeline/image_view.h"

#include <algorithm>

#include "core/error.h"

namespace etr::pipeline {

ImageView::ImageView(Tensor pixels) {
  if (pixels.dtype() != DType::u8 || pixels.shape().size() != 3)
    fail(Code::invalid_argument, "echo with 'device' takes u8 images [H, W, C], not ",
         dtype_name(pixels.dtype()), " ", shape_text(pixels.shape()),
         "; put decode in front of it, and batch and normalize after it");
  height = bottom = pixels.shape()[0];
  width = right = pixels.shape()[1];
  image = std::make_shared<const Tensor>(std::move(pixels));
}

namespace {

// For one axis: narrows [low, high) to what the result has shown so far, and moves the origin.
void crop_axis(int64_t& origin, int64_t step, int64_t& low, int64_t& high, int64_t extent,
               int64_t begin) {
  const int64_t last = origin + step * (extent - 1);
  low = std::max(low, std::min(origin, last));
  high = std::min(high, std::max(origin, last) + 1);
  origin += step * begin;
}

}  // namespace

void ImageView::resample(std::shared_ptr<const Resampling> by) {
  height = bottom = static_cast<int64_t>(by->rows.first.size());
  width = right = static_cast<int64_t>(by->columns.first.size());
  resampling = std::move(by);
}

void ImageView::crop(int64_t y, int64_t x, int64_t window_height, int64_t window_width) {
  crop_axis(origin_y, step_y, top, bottom, height, y);
  crop_axis(origin_x, step_x, left, right, width, x);
  height = window_height;
  width = window_width;
}

void ImageView::flip(bool vertical) {
  if (vertical) {
    origin_y += step_y * (height - 1);
    step_y = -step_y;
  } else {
    origin_x += step_x * (width - 1);
    step_x = -step_x;
  }
}

void ImageView::adjust(float by_contrast, float by_brightness) {
  adjusts = true;
  contrast = by_contrast;
  brightness = by_brightness;
}

void ImageView::change_colours(const Jitter& by) {
  jitters = true;
  jitter = by;
}

}  // namespace etr::pipeline
