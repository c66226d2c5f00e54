#include "codec/orientation.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "core/memory.h"

namespace etr::codec {
namespace {

// Reads the integers of a TIFF file. Beyond its end they read as 0, which is invalid in every field
// that is read here.
class Tiff {
 public:
  explicit Tiff(std::span<const std::byte> bytes) : bytes_(bytes) { little_ = byte(0) == 'I'; }

  bool has_header() const {
    return byte(0) == byte(1) && (byte(0) == 'I' || byte(0) == 'M') && number(2, 2) == 42;
  }

  // An integer of `size` bytes.
  uint32_t number(size_t at, size_t size) const {
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) value = value << 8 | byte(at + (little_ ? size - 1 - i : i));
    return value;
  }

 private:
  uint32_t byte(size_t at) const {
    return at < bytes_.size() ? std::to_integer<uint32_t>(bytes_[at]) : 0;
  }

  std::span<const std::byte> bytes_;
  bool little_;
};

// Copies rows `stride` bytes apart pixel by pixel, kPixel bytes each, or `pixel` bytes if kPixel is
// 0.
template <size_t kPixel>
void place_columns(const uint8_t* band, size_t stride, int64_t rows, int64_t width, size_t pixel,
                   const Placement& place, int64_t first, uint8_t* out) {
  const auto n = static_cast<ptrdiff_t>(kPixel ? kPixel : pixel);
  for (int64_t x = 0; x < width; ++x) {
    const uint8_t* from = band + x * n;
    uint8_t* to = out + place.at(x, first) * n;
    for (int64_t y = 0; y < rows; ++y, from += stride, to += place.down * n)
      std::memcpy(to, from, kPixel ? kPixel : pixel);
  }
}

template <size_t kPixel>
void place_rows(const uint8_t* band, size_t stride, int64_t rows, int64_t width, size_t pixel,
                const Placement& place, int64_t first, uint8_t* out) {
  const auto n = static_cast<ptrdiff_t>(kPixel ? kPixel : pixel);
  for (int64_t y = 0; y < rows; ++y, band += stride) {
    const uint8_t* from = band;
    uint8_t* to = out + place.at(0, first + y) * n;
    for (int64_t x = 0; x < width; ++x, from += n, to += place.along * n)
      std::memcpy(to, from, kPixel ? kPixel : pixel);
  }
}

}  // namespace

Orientation exif_orientation(std::span<const std::byte> bytes) {
  constexpr uint32_t kTag = 0x0112, kShort = 3;
  constexpr size_t kEntry = 12;
  const Tiff tiff(bytes);
  if (bytes.size() < 8 || !tiff.has_header()) return Orientation::upright;
  const size_t directory = tiff.number(4, 4), entries = tiff.number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t at = directory + 2 + i * kEntry;
    if (at + kEntry > bytes.size()) break;
    if (tiff.number(at, 2) != kTag) continue;
    const uint32_t value = tiff.number(at + 8, 2);
    const bool good =
        tiff.number(at + 2, 2) == kShort && tiff.number(at + 4, 4) == 1 && value >= 1 && value <= 8;
    return good ? static_cast<Orientation>(value) : Orientation::upright;
  }
  return Orientation::upright;
}

Orientation jpeg_orientation(std::span<const std::byte> jpeg) {
  constexpr unsigned kApp1 = 0xE1, kStartOfScan = 0xDA, kEndOfImage = 0xD9;
  constexpr char kName[] = {'E', 'x', 'i', 'f', 0, 0};
  const auto byte = [&](size_t at) { return std::to_integer<unsigned>(jpeg[at]); };
  for (size_t at = 2; at + 4 <= jpeg.size();) {
    // Like libjpeg, skips bytes between segments and fill bytes before a marker.
    if (byte(at) != 0xFF || byte(at + 1) == 0xFF) {
      ++at;
      continue;
    }
    const unsigned marker = byte(at + 1);
    if (marker == kStartOfScan || marker == kEndOfImage) break;
    at += 2;
    if (marker < 0x02 || (marker >= 0xD0 && marker <= 0xD8)) continue;  // no body
    const size_t length = byte(at) << 8 | byte(at + 1);
    if (length < 2 || length > jpeg.size() - at) break;
    const auto body = jpeg.subspan(at + 2, length - 2);
    if (marker == kApp1 && body.size() >= sizeof kName &&
        std::memcmp(body.data(), kName, sizeof kName) == 0)
      return exif_orientation(body.subspan(sizeof kName));
    at += length;
  }
  return Orientation::upright;
}

Placement placement_of(Orientation orientation, int64_t w, int64_t h) {
  switch (orientation) {
    case Orientation::upright: return {0, 1, w};
    case Orientation::mirror: return {w - 1, -1, w};
    case Orientation::rotate_180: return {w * h - 1, -1, -w};
    case Orientation::flip: return {(h - 1) * w, 1, -w};
    case Orientation::transpose: return {0, h, 1};
    case Orientation::rotate_right: return {h - 1, h, -1};
    case Orientation::transverse: return {w * h - 1, -h, -1};
    case Orientation::rotate_left: return {(w - 1) * h, -h, 1};
  }
  return {0, 1, w};
}

OrientedRows::OrientedRows(Orientation orientation, int64_t width, int64_t height, size_t pixel,
                           void* out)
    : place_(placement_of(orientation, width, height)),
      width_(width),
      height_(height),
      pixel_(pixel),
      stride_(static_cast<size_t>(width) * pixel),
      out_(static_cast<uint8_t*>(out)) {
  const int64_t bytes = band_bytes(orientation, width, height, pixel);
  if (bytes == 0) return;
  constexpr size_t kOff = 16;  // see Tensor::off_boundary
  memory_ = allocate_bytes(static_cast<size_t>(bytes) + kOff);
  band_ = reinterpret_cast<uint8_t*>(memory_.get()) + kOff;
}

int64_t OrientedRows::band_bytes(Orientation orientation, int64_t width, int64_t height,
                                 size_t pixel) {
  if (orientation == Orientation::upright || orientation == Orientation::flip) return 0;
  return std::min(kBand, height) * width * static_cast<int64_t>(pixel);
}

uint8_t* OrientedRows::row(int64_t y) {
  if (band_) return band_ + static_cast<size_t>(y % kBand) * stride_;
  return out_ + place_.at(0, y) * static_cast<ptrdiff_t>(pixel_);
}

int64_t OrientedRows::together(int64_t y) const { return std::min(kBand - y % kBand, height_ - y); }

void OrientedRows::done(int64_t end) {
  if (band_ && (end % kBand == 0 || end == height_)) place_band(end);
}

void OrientedRows::place_band(int64_t end) {
  const int64_t first = (end - 1) / kBand * kBand;
  const bool columns = std::abs(place_.along) != 1;
  const auto place = [&]<size_t kPixel>(std::integral_constant<size_t, kPixel>) {
    (columns ? place_columns<kPixel> : place_rows<kPixel>)(band_, stride_, end - first, width_,
                                                           pixel_, place_, first, out_);
  };
  if (pixel_ == 1)
    place(std::integral_constant<size_t, 1>());
  else if (pixel_ == 3)
    place(std::integral_constant<size_t, 3>());
  else
    place(std::integral_constant<size_t, 0>());
}

}  // namespace etr::codec
