// Operations on images [H, W, C] of u8, u16 or f32 that several stages share. Whole numbers are rounded and clamped;
// "full scale" is 255 for u8, 65535 for u16 and 1 for f32.
#pragma once

#include <array>
#include <functional>

#include "pipeline/image_view.h"
#include "tensor/tensor.h"

namespace etr::stages {

template <typename T>
constexpr float kFullScale = 1;
template <>
inline constexpr float kFullScale<uint8_t> = 255;
template <>
inline constexpr float kFullScale<uint16_t> = 65535;

enum class Filter { nearest, bilinear, area };
Filter filter_named(const std::string& name);  // "nearest", "bilinear", "area"

// An image that was shrunk in another way to so many times the size that is wanted, or more, makes the same result to the eye.
constexpr int64_t kReducingGap = 2;

// A rectangle of an image in pixels; may have fractions.
struct Box {
  double y = 0, x = 0, height = 0, width = 0;
};

inline Box box_of(int64_t y, int64_t x, int64_t height, int64_t width) {
  return {static_cast<double>(y), static_cast<double>(x), static_cast<double>(height),
          static_cast<double>(width)};
}

// `box` of the image, scaled to `height` x `width`. Shrinking is antialiased: bilinear weights pixels by a triangle,
// area by a box, both as wide as the pixels they stand for (the convention of Pillow). Two passes, rows first.
Tensor resample(const Tensor& image, const Box& box, int64_t height, int64_t width, Filter filter);
// The same as weights, of images [image_height, image_width, C].
pipeline::Resampling resampling(const Box& box, int64_t image_height, int64_t image_width,
                                int64_t height, int64_t width, Filter filter);

// A whole rectangle that may reach over the edges; outside is `fill` (of full scale).
Tensor crop(const Tensor& image, int64_t y, int64_t x, int64_t height, int64_t width,
            float fill = 0);

// out(y, x) = image(m * (x, y, 1)), bilinear; outside is `fill` (of full scale). `m` maps pixel centres of the result to
// those of the image, row-major: {xx, xy, x0, yx, yy, y0}.
Tensor warp(const Tensor& image, const std::array<double, 6>& m, float fill);

// The matrix for warp() that turns by `degrees` (anticlockwise), scales, shears (degrees along x) and moves (in
// pixels) about the image's centre.
std::array<double, 6> affine(int64_t height, int64_t width, double degrees, double scale,
                             double shear, double move_y, double move_x);

// Applies a function to each value, as a share of full scale, and clamps to it.
Tensor per_value(Tensor image, const std::function<float(float)>& f);

// (v - about) * factor + about for each value, in the image's own scale.
Tensor stretch(Tensor image, float factor, float about);

// What a gray picture of it looks like: ITU-R BT.601 luma, as many channels as before. Of bytes it is a byte, by whole numbers
// alone, so that a device finds the same.
Tensor to_gray(const Tensor& image);
float mean_luma(const Tensor& image);  // in the image's own scale
// weight * a + (1 - weight) * b, clamped to full scale; `a` may be reused.
Tensor blend(Tensor a, const Tensor& b, float weight);
// Turns the hue by `turns` of the colour circle about the gray axis; for three channels.
Tensor turn_hue(Tensor image, float turns);
std::array<float, 9> hue_matrix(float turns);

}  // namespace etr::stages
