// The remaining operations on an image, left to the consumer: scaling, pixel positions and colours.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tensor/tensor.h"

namespace etr::pipeline {

// The source pixels of each result pixel along one axis: `count` pixels from first[i], weighted by
// weights[i * count].
struct Taps {
  uint32_t count = 0;
  std::vector<uint32_t> first;
  std::vector<float> weights;
};

// Scales a part of an image to [rows.first.size(), columns.first.size()] by weighted float sums, in
// the order of the taps, rounded once at the end.
struct Resampling {
  Taps rows, columns;
  bool columns_first = false;                        // the inner sum is over columns
  uint32_t most_row_taps = 0, most_column_taps = 0;  // for any part of an image of this size
};

// Colour changes, in this order; each result is rounded to a byte. With l the mean luma of the
// current image: v * brightness; (v - l) * contrast + l; for three channels v * saturation + luma *
// (1 - saturation), and hue * (r, g, b).
struct Jitter {
  float brightness = 1, contrast = 1, saturation = 1;
  std::array<float, 9> hue = {1, 0, 0, 0, 1, 0, 0, 0, 1};  // row-major
};

// With S the image, resampled if `resampling` is set: pixel (y, x) of the result is S(origin_y +
// step_y * y, origin_x + step_x * x), black outside of [top, bottom) x [left, right). Then, if
// `adjusts`, with m the mean of all values:
//   v = clamp(round((v - m) * contrast + m + brightness), 0, 255)
// and then, if `jitters`, as described at Jitter.
struct ImageView {
  // The pixels, u8 [H, W, C]. All replicas of a sample share this object, so that a consumer can
  // recognise pixels it already has.
  std::shared_ptr<const Tensor> image;
  std::shared_ptr<const Resampling> resampling;  // nullptr: S is the image
  int64_t height, width;
  int64_t origin_y = 0, origin_x = 0, step_y = 1, step_x = 1;
  int64_t top = 0, bottom, left = 0, right;
  bool adjusts = false, jitters = false;
  float contrast = 1, brightness = 0;
  Jitter jitter;

  // Views the whole image. Throws Error(invalid_argument) if it is not u8 [H, W, C].
  explicit ImageView(Tensor pixels);

  // The pipeline ensures that these are called in the order of ViewStep: the black border that
  // crop() may add must stay black.
  void resample(std::shared_ptr<const Resampling> by);
  // Takes a window of the current result. It may extend beyond the edges, where it is black.
  void crop(int64_t y, int64_t x, int64_t window_height, int64_t window_width);
  void flip(bool vertical);
  void adjust(float by_contrast, float by_brightness);
  void change_colours(const Jitter& by);
};

}  // namespace etr::pipeline
