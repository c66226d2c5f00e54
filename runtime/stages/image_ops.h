// Shared operations on images [H, W, C] of u8, u16 or f32. Integers are rounded and clamped. "Full
// scale" is 255 for u8, 65535 for u16 and 1 for f32.
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

// If an image was first shrunk by other means to at least this multiple of the wanted size, the
// final result looks the same.
constexpr int64_t kReducingGap = 2;

// A rectangle of an image in pixels; may be fractional.
struct Box {
  double y = 0, x = 0, height = 0, width = 0;
};

inline Box box_of(int64_t y, int64_t x, int64_t height, int64_t width) {
  return {static_cast<double>(y), static_cast<double>(x), static_cast<double>(height),
          static_cast<double>(width)};
}

// Scales `box` of the image to `height` x `width` in two passes, in the cheaper order. Shrinking is
// antialiased: bilinear weights pixels by a triangle, area by a box, both scaled with the shrinking
// factor (as in Pillow).
Tensor resample(const Tensor& image, const Box& box, int64_t height, int64_t width, Filter filter);
// The same as weights, for images [image_height, image_width, C].
pipeline::Resampling resampling(const Box& box, int64_t image_height, int64_t image_width,
                                int64_t height, int64_t width, Filter filter);

// Crops an integer rectangle that may extend beyond the edges. Outside is `fill`, relative to full
// scale.
Tensor crop(const Tensor& image, int64_t y, int64_t x, int64_t height, int64_t width,
            float fill = 0);

// out(y, x) = image(m * (x, y, 1)), bilinear. Outside is `fill`, relative to full scale. `m` maps
// pixel centres of the result to those of the image, row-major: {xx, xy, x0, yx, yy, y0}.
Tensor warp(const Tensor& image, const std::array<double, 6>& m, float fill);

// The matrix for warp() that rotates by `degrees` (anticlockwise), scales, shears (degrees along x)
// and translates (in pixels) about the image's centre.
std::array<double, 6> affine(int64_t height, int64_t width, double degrees, double scale,
                             double shear, double move_y, double move_x);

// Applies a function to each value, relative to full scale, and clamps the result.
Tensor per_value(Tensor image, const std::function<float(float)>& f);

// (v - about) * factor + about for each value, in the image's own scale.
Tensor stretch(Tensor image, float factor, float about);

// Converts to gray by ITU-R BT.601 luma, keeping the number of channels. For u8 the luma is
// computed in integers, so that a device gets the same result.
Tensor to_gray(const Tensor& image);
float mean_luma(const Tensor& image);  // in the image's own scale
// Returns weight * a + (1 - weight) * b, clamped to full scale. May reuse the memory of `a`.
Tensor blend(Tensor a, const Tensor& b, float weight);
// Rotates the hue by `turns` full turns about the gray axis. For three channels.
Tensor turn_hue(Tensor image, float turns);
std::array<float, 9> hue_matrix(float turns);

}  // namespace etr::stages
