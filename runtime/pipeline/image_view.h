// What is left to do to an image, for a device to do: where its pixels go, and how bright they are.
#pragma once

#include <cstdint>
#include <memory>

#include "tensor/tensor.h"

namespace etr::pipeline {

// Pixel (y, x) of the result is image(origin_y + step_y * y, origin_x + step_x * x), black outside of
// [top, bottom) x [left, right). Then, where `adjusts`, with m the mean of all values of the result:
//   v = clamp(round((v - m) * contrast + m + brightness), 0, 255)
struct ImageView {
  // The pixels, u8 [H, W, C]. All replicas of a sample share this object, by which a device that has
  // the pixels already knows them.
  std::shared_ptr<const Tensor> image;
  int64_t height, width;
  int64_t origin_y = 0, origin_x = 0, step_y = 1, step_x = 1;
  int64_t top = 0, bottom, left = 0, right;
  bool adjusts = false;
  float contrast = 1, brightness = 0;

  // The whole image; Error(invalid_argument) where it is not u8 [H, W, C].
  explicit ImageView(Tensor pixels);

  // A window of the result, which may reach over its edges: black there. Error(unsupported) behind
  // adjust(): what is black then is not what it would have been.
  void crop(int64_t y, int64_t x, int64_t window_height, int64_t window_width);
  void flip(bool vertical);
  void adjust(float by_contrast, float by_brightness);  // once: Error(unsupported)
};

}  // namespace etr::pipeline
