// Resampling by weighted sums of rows and of columns, in either order. Sums are in float and
// rounded once at the end. The working set is a few rows, which stay in the cache.
#include <algorithm>
#include <cmath>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "core/error.h"
#include "core/platform.h"
#include "stages/image_ops.h"

namespace etr::stages {
namespace {

using pipeline::Resampling;
using pipeline::Taps;

// How far a result pixel reaches to either side, in source pixels.
double support_of(double scale, Filter filter) {
  return (filter == Filter::bilinear ? 1 : 0.5) * std::max(scale, 1.0);
}

uint32_t tap_count(double length, int64_t available, int64_t wanted, Filter filter) {
  const double reach = 2 * support_of(length / static_cast<double>(wanted), filter);
  const double most = filter == Filter::nearest ? 1 : std::ceil(reach);
  return static_cast<uint32_t>(std::min(most, static_cast<double>(available)));
}

Taps make_taps(double begin, double length, int64_t available, int64_t wanted, Filter filter) {
  const double scale = length / static_cast<double>(wanted), stretch = std::max(scale, 1.0);
  const double support = support_of(scale, filter);
  Taps out;
  // The same count for all pixels, so that loops over taps have a constant length; excess taps have
  // weight 0.
  out.count = tap_count(length, available, wanted, filter);
  out.first.resize(static_cast<size_t>(wanted));
  out.weights.resize(out.first.size() * out.count);
  for (size_t i = 0; i < out.first.size(); ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    auto first = static_cast<int64_t>(std::floor(centre - support + 0.5));
    auto end = static_cast<int64_t>(std::floor(centre + support + 0.5));
    if (filter == Filter::nearest) {
      first = static_cast<int64_t>(std::floor(centre));
      end = first + 1;
    }
    first = std::clamp<int64_t>(first, 0, available - 1);
    end = std::clamp<int64_t>(end, first + 1, std::min(available, first + out.count));
    const int64_t from = std::min(first, available - static_cast<int64_t>(out.count));
    float* weights = out.weights.data() + i * out.count;
    double sum = 0;
    for (int64_t k = first; k < end; ++k) {
      const double distance = std::abs((static_cast<double>(k) + 0.5 - centre) / stretch);
      const double weight = filter == Filter::bilinear ? std::max(0.0, 1 - distance) : 1.0;
      weights[k - from] = static_cast<float>(weight);
      sum += weight;
    }
    if (sum <= 0) {  // beyond the edge: use the edge pixel
      std::fill(weights + (first - from), weights + (end - from), 1.0f);
      sum = static_cast<double>(end - first);
    }
    for (uint32_t k = 0; k < out.count; ++k) weights[k] = static_cast<float>(weights[k] / sum);
    out.first[i] = static_cast<uint32_t>(from);
  }
  return out;
}

ETR_VECTOR_CLONES void widen(const uint8_t* in, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]);
}
ETR_VECTOR_CLONES void widen(const uint16_t* in, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]);
}
void widen(const float* in, size_t n, float* out) { std::copy(in, in + n, out); }

// Rounds values in the range of a byte.
void narrow(const float* in, size_t n, uint8_t* out) {
  size_t i = 0;
#if defined(__SSE2__)
  const __m128 half = _mm_set1_ps(0.5f);
  const auto four = [&](const float* at) {
    return _mm_cvttps_epi32(_mm_add_ps(_mm_loadu_ps(at), half));
  };
  for (; i + 16 <= n; i += 16) {
    const __m128i low = _mm_packs_epi32(four(in + i), four(in + i + 4));
    const __m128i high = _mm_packs_epi32(four(in + i + 8), four(in + i + 12));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm_packus_epi16(low, high));
  }
#endif
  for (; i < n; ++i)
    out[i] = static_cast<uint8_t>(std::clamp(static_cast<int>(in[i] + 0.5f), 0, 255));
}
void narrow(const float* in, size_t n, uint16_t* out) {
  for (size_t i = 0; i < n; ++i)
    out[i] = static_cast<uint16_t>(std::clamp(static_cast<int>(in[i] + 0.5f), 0, 65535));
}
void narrow(const float* in, size_t n, float* out) { std::copy(in, in + n, out); }

ETR_VECTOR_CLONES void mix_rows(const float* const* rows, const float* weights, uint32_t count,
                                size_t n, float* __restrict out) {
  const float* __restrict a = rows[0];
  const float* __restrict b = rows[count > 1 ? 1 : 0];
  const float of_a = weights[0], of_b = count > 1 ? weights[1] : 0;
  for (size_t i = 0; i < n; ++i) out[i] = of_a * a[i] + of_b * b[i];
  for (uint32_t k = 2; k < count; ++k) {
    const float* __restrict more = rows[k];
    const float weight = weights[k];
    for (size_t i = 0; i < n; ++i) out[i] += weight * more[i];
  }
}

// Four floats with any alignment.
using Four [[gnu::vector_size(16), gnu::aligned(4), gnu::may_alias]] = float;
constexpr size_t kSlack = 4;  // floats after a row that may be accessed

// Processes pixels of 3 or 4 channels as one vector. With 3 channels the fourth lane belongs to the
// next pixel and is overwritten by it.
template <size_t kChannels, uint32_t kCount>
[[gnu::always_inline]] inline void mix_pixels(const Taps& taps, const float* row, float* out) {
  const uint32_t count = kCount ? kCount : taps.count;
  const float* weights = taps.weights.data();
  for (const uint32_t first : taps.first) {
    const float* from = row + first * kChannels;
    Four sum = weights[0] * *reinterpret_cast<const Four*>(from);
    for (uint32_t k = 1; k < count; ++k)
      sum += weights[k] * *reinterpret_cast<const Four*>(from + k * kChannels);
    *reinterpret_cast<Four*>(out) = sum;
    out += kChannels;
    weights += count;
  }
}

ETR_VECTOR_CLONES void mix_columns_of_3(const Taps& taps, const float* row, float* out) {
  if (taps.count == 2) return mix_pixels<3, 2>(taps, row, out);
  if (taps.count == 3) return mix_pixels<3, 3>(taps, row, out);
  mix_pixels<3, 0>(taps, row, out);
}

ETR_VECTOR_CLONES void mix_columns_of_4(const Taps& taps, const float* row, float* out) {
  mix_pixels<4, 0>(taps, row, out);
}

void mix_columns_of(size_t channels, const Taps& taps, const float* row, float* out) {
  const float* weights = taps.weights.data();
  for (const uint32_t first : taps.first) {
    for (size_t c = 0; c < channels; ++c) {
      const float* from = row + first * channels + c;
      float sum = 0;
      for (uint32_t k = 0; k < taps.count; ++k) sum += weights[k] * from[k * channels];
      *out++ = sum;
    }
    weights += taps.count;
  }
}

void mix_columns(size_t channels, const Taps& taps, const float* row, float* out) {
  if (channels == 3)
    mix_columns_of_3(taps, row, out);
  else if (channels == 4)
    mix_columns_of_4(taps, row, out);
  else
    mix_columns_of(channels, taps, row, out);
}

template <typename T>
void resample_as(const Tensor& image, const Resampling& by, Tensor& out) {
  const Taps &rows = by.rows, &columns = by.columns;
  const auto channels = static_cast<size_t>(image.shape()[2]);
  const size_t row = static_cast<size_t>(image.shape()[1]) * channels;
  const size_t width = columns.first.size() * channels;
  // Only the columns that the result depends on.
  const size_t skipped = columns.first.front() * channels;
  const size_t used = (columns.first.back() + columns.count) * channels - skipped;
  Taps near = columns;
  for (uint32_t& first : near.first) first -= columns.first.front();

  const bool columns_first = by.columns_first;
  const size_t length = (columns_first ? width : used) + kSlack;

  // A ring buffer with the source rows that are needed at a time.
  std::vector<float> ring(length * rows.count), line(std::max(width, used) + kSlack), mixed(length);
  std::vector<const float*> window(rows.count);
  const T* from = static_cast<const T*>(image.data()) + skipped;
  T* to = static_cast<T*>(out.mutable_data());
  size_t next = rows.first.front();
  for (size_t y = 0; y < rows.first.size(); ++y, to += width) {
    for (next = std::max<size_t>(next, rows.first[y]); next < rows.first[y] + rows.count; ++next) {
      float* place = ring.data() + next % rows.count * length;
      widen(from + next * row, used, columns_first ? line.data() : place);
      if (columns_first) mix_columns(channels, near, line.data(), place);
    }
    for (uint32_t k = 0; k < rows.count; ++k)
      window[k] = ring.data() + (rows.first[y] + k) % rows.count * length;
    mix_rows(window.data(), rows.weights.data() + y * rows.count, rows.count, length - kSlack,
             mixed.data());
    if (!columns_first) mix_columns(channels, near, mixed.data(), line.data());
    narrow(columns_first ? mixed.data() : line.data(), width, to);
  }
}

}  // namespace

Filter filter_named(const std::string& name) {
  return name == "nearest" ? Filter::nearest : name == "area" ? Filter::area : Filter::bilinear;
}

Resampling resampling(const Box& box, int64_t image_height, int64_t image_width, int64_t height,
                      int64_t width, Filter filter) {
  Resampling out;
  out.rows = make_taps(box.y, box.height, image_height, height, filter);
  out.columns = make_taps(box.x, box.width, image_width, width, filter);
  // Mixing a pixel's columns costs several times more than mixing rows, so columns go first if the
  // result has more rows than the image.
  const Taps& rows = out.rows;
  out.columns_first = rows.first.back() + rows.count - rows.first.front() < rows.first.size();
  const auto most = [&](int64_t available, int64_t wanted) {
    return tap_count(static_cast<double>(available), available, wanted, filter);
  };
  out.most_row_taps = most(image_height, height);
  out.most_column_taps = most(image_width, width);
  return out;
}

Tensor resample(const Tensor& image, const Box& box, int64_t height, int64_t width, Filter filter) {
  const int64_t h = image.shape()[0], w = image.shape()[1], c = image.shape()[2];
  const bool whole = box.y == 0 && box.x == 0 && box.height == static_cast<double>(h) &&
                     box.width == static_cast<double>(w);
  if (whole && h == height && w == width) return image;
  const Resampling by = resampling(box, h, w, height, width, filter);
  Tensor out(image.dtype(), {height, width, c});
  if (image.dtype() == DType::u8)
    resample_as<uint8_t>(image, by, out);
  else if (image.dtype() == DType::u16)
    resample_as<uint16_t>(image, by, out);
  else
    resample_as<float>(image, by, out);
  return out;
}

}  // namespace etr::stages
