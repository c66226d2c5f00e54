#include "stages/image_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "core/error.h"

namespace etr::stages {
namespace {

template <typename T>
T as(float value) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(std::clamp(value + 0.5f, 0.0f, kFullScale<T>));
  else
    return value;
}

// Calls f with a value of the image's element type.
template <typename F>
void with_type(const Tensor& image, F&& f) {
  if (image.dtype() == DType::u8)
    f(uint8_t{});
  else if (image.dtype() == DType::u16)
    f(uint16_t{});
  else
    f(float{});
}

float full_scale(const Tensor& image) {
  float full = 0;
  with_type(image, [&](auto type) { full = kFullScale<decltype(type)>; });
  return full;
}

}  // namespace

Tensor crop(const Tensor& image, int64_t y0, int64_t x0, int64_t height, int64_t width,
            float fill) {
  const int64_t h = image.shape()[0], w = image.shape()[1];
  const auto channels = static_cast<size_t>(image.shape()[2]);
  Tensor out(image.dtype(), {height, width, image.shape()[2]});
  // Columns [begin, end) of the window lie inside the image.
  const int64_t begin = std::clamp<int64_t>(-x0, 0, width), end = std::clamp(w - x0, begin, width);
  with_type(image, [&](auto type) {
    using T = decltype(type);
    const T empty = as<T>(fill * full_scale(image));
    const T* from = static_cast<const T*>(image.data());
    T* to = static_cast<T*>(out.mutable_data());
    for (int64_t y = 0; y < height; ++y, to += static_cast<size_t>(width) * channels) {
      const int64_t sy = y + y0;
      if (sy < 0 || sy >= h) {
        std::fill(to, to + static_cast<size_t>(width) * channels, empty);
        continue;
      }
      std::fill(to, to + static_cast<size_t>(begin) * channels, empty);
      if (begin < end)
        std::memcpy(to + static_cast<size_t>(begin) * channels,
                    from + static_cast<size_t>(sy * w + begin + x0) * channels,
                    static_cast<size_t>(end - begin) * channels * sizeof(T));
      std::fill(to + static_cast<size_t>(end) * channels,
                to + static_cast<size_t>(width) * channels, empty);
    }
  });
  return out;
}

Tensor warp(const Tensor& image, const std::array<double, 6>& m, float fill) {
  const int64_t h = image.shape()[0], w = image.shape()[1];
  const auto channels = static_cast<size_t>(image.shape()[2]);
  Tensor out(image.dtype(), image.shape());
  with_type(image, [&](auto type) {
    using T = decltype(type);
    const float empty = fill * full_scale(image);
    const T* from = static_cast<const T*>(image.data());
    T* to = static_cast<T*>(out.mutable_data());
    const auto pixel = [&](int64_t y, int64_t x, size_t c) {
      return y < 0 || x < 0 || y >= h || x >= w
                 ? empty
                 : static_cast<float>(from[static_cast<size_t>(y * w + x) * channels + c]);
    };
    for (int64_t y = 0; y < h; ++y)
      for (int64_t x = 0; x < w; ++x) {
        const double px = static_cast<double>(x) + 0.5, py = static_cast<double>(y) + 0.5;
        const double sx = m[0] * px + m[1] * py + m[2] - 0.5,
                     sy = m[3] * px + m[4] * py + m[5] - 0.5;
        // Clamped, because integers would overflow far outside of the image, where there is only
        // the fill.
        const double fx = std::clamp(std::floor(sx), -2.0, static_cast<double>(w) + 1);
        const double fy = std::clamp(std::floor(sy), -2.0, static_cast<double>(h) + 1);
        const auto ix = static_cast<int64_t>(fx), iy = static_cast<int64_t>(fy);
        const auto ax = static_cast<float>(std::clamp(sx - fx, 0.0, 1.0));
        const auto ay = static_cast<float>(std::clamp(sy - fy, 0.0, 1.0));
        for (size_t c = 0; c < channels; ++c) {
          const float top = pixel(iy, ix, c) * (1 - ax) + pixel(iy, ix + 1, c) * ax;
          const float bottom = pixel(iy + 1, ix, c) * (1 - ax) + pixel(iy + 1, ix + 1, c) * ax;
          *to++ = as<T>(top * (1 - ay) + bottom * ay);
        }
      }
  });
  return out;
}

std::array<double, 6> affine(int64_t height, int64_t width, double degrees, double scale,
                             double shear, double move_y, double move_x) {
  const double turn = degrees * std::numbers::pi / 180,
               slant = std::tan(shear * std::numbers::pi / 180);
  const double cx = 0.5 * static_cast<double>(width), cy = 0.5 * static_cast<double>(height);
  // The inverse of move * turn * shear * scale, which maps the image to the result.
  const double c = std::cos(turn) / scale, s = std::sin(turn) / scale;
  const double xx = c - slant * s, xy = -s - slant * c, yx = s, yy = c;
  const double tx = -(cx + move_x), ty = -(cy + move_y);
  return {xx, xy, xx * tx + xy * ty + cx, yx, yy, yx * tx + yy * ty + cy};
}

namespace {

// Applies f to each value, in the image's own scale, and clamps to it.
template <typename F>
Tensor each_value(Tensor image, F&& f) {
  Tensor out = std::move(image).writable();
  if (out.dtype() == DType::u8) {
    std::array<uint8_t, 256> table;  // f of every possible value
    for (size_t v = 0; v < 256; ++v) table[v] = as<uint8_t>(f(static_cast<float>(v)));
    for (uint8_t& v : out.mutable_view<uint8_t>()) v = table[v];
  } else if (out.dtype() == DType::u16) {
    for (uint16_t& v : out.mutable_view<uint16_t>()) v = as<uint16_t>(f(static_cast<float>(v)));
  } else {
    for (float& v : out.mutable_view<float>()) v = std::clamp(f(v), 0.0f, 1.0f);
  }
  return out;
}

}  // namespace

Tensor per_value(Tensor image, const std::function<float(float)>& f) {
  const float full = full_scale(image);
  return each_value(std::move(image), [&](float v) { return full * f(v / full); });
}

Tensor stretch(Tensor image, float factor, float about) {
  return each_value(std::move(image), [&](float v) { return (v - about) * factor + about; });
}

namespace {

float luma_of(const float* p) { return 0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2]; }
// For u8 or u16, in units of 1/65536. Must match shaders/reservoir.comp.
template <typename T>
T luma_of(const T* p) {
  return static_cast<T>((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 32768u) >> 16);
}

// Calls f(pixel, luma) for each pixel, in the image's own scale.
template <typename T, typename F>
void each_luma(const Tensor& image, F&& f) {
  const auto channels = static_cast<size_t>(image.shape()[2]);
  const T* p = static_cast<const T*>(image.data());
  const auto pixels = static_cast<size_t>(image.count()) / channels;
  for (size_t i = 0; i < pixels; ++i, p += channels) f(i, channels >= 3 ? luma_of(p) : p[0]);
}

}  // namespace

Tensor to_gray(const Tensor& image) {
  Tensor out(image.dtype(), image.shape());
  const auto channels = static_cast<size_t>(image.shape()[2]);
  with_type(image, [&](auto type) {
    using T = decltype(type);
    T* to = static_cast<T*>(out.mutable_data());
    each_luma<T>(image, [&](size_t i, T luma) {
      std::fill(to + i * channels, to + (i + 1) * channels, luma);
    });
  });
  return out;
}

float mean_luma(const Tensor& image) {
  if (image.count() == 0) return 0;
  const float share = 1.0f / static_cast<float>(image.count() / image.shape()[2]);
  float mean = 0;
  with_type(image, [&](auto type) {
    using T = decltype(type);
    std::conditional_t<std::is_integral_v<T>, uint64_t, double> sum = 0;
    each_luma<T>(image, [&](size_t, T luma) { sum += luma; });
    if constexpr (std::is_integral_v<T>)
      mean = static_cast<float>(sum) * share;
    else
      mean = static_cast<float>(sum * share);
  });
  return mean;
}

Tensor blend(Tensor a, const Tensor& b, float weight) {
  Tensor out = std::move(a).writable();
  with_type(b, [&](auto type) {
    using T = decltype(type);
    const auto other = b.view<T>();
    const auto values = out.mutable_view<T>();
    const float full = full_scale(b);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = as<T>(std::clamp(
          weight * static_cast<float>(values[i]) + (1 - weight) * static_cast<float>(other[i]),
          0.0f, full));
  });
  return out;
}

std::array<float, 9> hue_matrix(float turns) {
  // A rotation about the gray axis by Rodrigues' formula, which preserves r + g + b.
  const float angle = turns * 2 * std::numbers::pi_v<float>;
  const float c = std::cos(angle), s = std::sin(angle) / std::sqrt(3.0f), t = (1 - c) / 3;
  return {c + t, t - s, t + s, t + s, c + t, t - s, t - s, t + s, c + t};
}

Tensor turn_hue(Tensor image, float turns) {
  const std::array<float, 9> m = hue_matrix(turns);
  Tensor out = std::move(image).writable();
  with_type(out, [&](auto type) {
    using T = decltype(type);
    const float full = full_scale(out);
    T* p = static_cast<T*>(out.mutable_data());
    for (int64_t i = 0; i < out.count() / 3; ++i, p += 3) {
      const float r = static_cast<float>(p[0]), g = static_cast<float>(p[1]),
                  b = static_cast<float>(p[2]);
      for (size_t k = 0; k < 3; ++k)
        p[k] = as<T>(std::clamp(m[3 * k] * r + m[3 * k + 1] * g + m[3 * k + 2] * b, 0.0f, full));
    }
  });
  return out;
}

}  // namespace etr::stages
