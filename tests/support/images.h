// Makes PNGs and JPEGs of every kind.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace etr::test {

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

bool same(const Tensor& a, const Tensor& b);  // in type, shape and values

struct PngKind {
  int bits = 8, colour = 2;  // a PNG_COLOR_TYPE
  bool interlaced = false;
  int filters = 0xF8;         // PNG_ALL_FILTERS
  bool transparency = false;  // a tRNS chunk
  int palette = 0;            // colours; 0: as many as the bit depth allows
};

// Returns a PNG whose pixels are partly smooth and partly random, in many small IDAT chunks.
std::string write_png(const PngKind& kind, uint32_t width, uint32_t height, uint32_t seed);

// Returns `png` with another chunk after the first one, IHDR, or before the last one, IEND.
std::string with_chunk(const std::string& png, const std::string& type, const std::string& body,
                       bool last = false);

// Returns a PNG of these filtered rows, of which there may be too few.
std::string assemble_png(uint32_t width, uint32_t height, int bits, int colour,
                         const std::string& rows, bool interlaced = false);

struct JpegKind {
  int channels = 3;  // of the pixels: 1 gray, 3 RGB, 4 inks (255 is none)
  // Horizontal and vertical sampling factors of each component; empty: the library's defaults.
  std::vector<std::pair<int, int>> sampling;
  bool progressive = false;
  bool stores_as_given = false;  // stores RGB and CMYK, not YCbCr and YCCK
  int quality = 95;
};
std::string write_jpeg(const JpegKind& kind, int width, int height,
                       std::span<const uint8_t> pixels);

// Returns [H, W, C] pixels with waves that JPEG preserves well.
std::vector<uint8_t> smooth_pixels(int width, int height, int channels);
std::string smooth_jpeg(const JpegKind& kind, int width, int height);

// Returns `jpeg` with a segment after its first marker.
std::string with_segment(const std::string& jpeg, uint8_t marker, const std::string& body);

// Returns EXIF data (a TIFF file) with an orientation entry, after `before` others.
std::string exif(int orientation, bool little_endian, int before = 0);

// Returns the image with the EXIF data, as a segment of a JPEG or a chunk of a PNG.
std::string with_exif(const std::string& image, const std::string& exif);

}  // namespace etr::test
