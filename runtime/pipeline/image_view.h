// What is left to do to an image, by the consumer: how it is scaled, where its pixels go, and what becomes of their colours.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tensor/tensor.h"

namespace etr::pipeline {

// The pixels that each result pixel is made of, along one axis: `count` from first[i], with weights[i * count].
struct Taps {
  uint32_t count = 0;
  std::vector<uint32_t> first;
  std::vector<float> weights;
};

// A part of an image scaled to [rows.first.size(), columns.first.size()] by weighted sums of floats, in the order of the taps,
// rounded once at the end.
struct Resampling {
  Taps rows, columns;
  bool columns_first = false;                        // which sum is the inner one
  uint32_t most_row_taps = 0, most_column_taps = 0;  // of any part of an image of this size
};

// Changes of colour, in this order; each result is rounded to a byte. With l the mean luma of what the image shows then:
// v * brightness; (v - l) * contrast + l; for three channels v * saturation + luma * (1 - saturation), and hue * (r, g, b).
struct Jitter {
  float brightness = 1, contrast = 1, saturation = 1;
  std::array<float, 9> hue = {1, 0, 0, 0, 1, 0, 0, 0, 1};  // by rows
};

// With S the image, or what `resampling` makes of it: pixel (y, x) of the result is S(origin_y + step_y * y, origin_x +
// step_x * x), black outside of [top, bottom) x [left, right). Then, where `adjusts`, with m the mean of all values:
//   v = clamp(round((v - m) * contrast + m + brightness), 0, 255)
// and then, where `jitters`, what Jitter says.
struct ImageView {
  // The pixels, u8 [H, W, C]. All replicas of a sample share this object, by which a consumer that has
  // the pixels already knows them.
  std::shared_ptr<const Tensor> image;
  std::shared_ptr<const Resampling> resampling;  // nullptr: S is the image
  int64_t height, width;
  int64_t origin_y = 0, origin_x = 0, step_y = 1, step_x = 1;
  int64_t top = 0, bottom, left = 0, right;
  bool adjusts = false, jitters = false;
  float contrast = 1, brightness = 0;
  Jitter jitter;

  // The whole image; Error(invalid_argument) where it is not u8 [H, W, C].
  explicit ImageView(Tensor pixels);

  // In the order of ViewStep, which a pipeline sees to: black that a window brings in stays black.
  void resample(std::shared_ptr<const Resampling> by);
  // A window of the result, which may reach over its edges: black there.
  void crop(int64_t y, int64_t x, int64_t window_height, int64_t window_width);
  void flip(bool vertical);
  void adjust(float by_contrast, float by_brightness);
  void change_colours(const Jitter& by);
};

}  // namespace etr::pipeline
