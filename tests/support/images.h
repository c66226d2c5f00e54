// PNGs and JPEGs of every kind, made on the spot.
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
  int palette = 0;            // colours; 0: as many as the bits can name
};

// Of pixels that are a mix of smooth and random, in many small IDAT chunks.
std::string write_png(const PngKind& kind, uint32_t width, uint32_t height, uint32_t seed);

// `png` with another chunk after its first one, IHDR, or before its last one, IEND.
std::string with_chunk(const std::string& png, const std::string& type, const std::string& body,
                       bool last = false);

// A PNG of these filtered rows, which may be too few.
std::string assemble_png(uint32_t width, uint32_t height, int bits, int colour,
                         const std::string& rows, bool interlaced = false);

struct JpegKind {
  int channels = 3;  // of the pixels: 1 gray, 3 RGB, 4 inks (255 is none)
  // Horizontal and vertical sampling of each component; empty: the library's own.
  std::vector<std::pair<int, int>> sampling;
  bool progressive = false;
  bool stores_as_given = false;  // RGB and CMYK, not YCbCr and YCCK
  int quality = 95;
};
std::string write_jpeg(const JpegKind& kind, int width, int height,
                       std::span<const uint8_t> pixels);

// [H, W, C] of waves that JPEG keeps well.
std::vector<uint8_t> smooth_pixels(int width, int height, int channels);
std::string smooth_jpeg(const JpegKind& kind, int width, int height);

// `jpeg` with a segment after its first marker.
std::string with_segment(const std::string& jpeg, uint8_t marker, const std::string& body);

// EXIF data (a TIFF file) of one entry that says how the image lies, after `before` others.
std::string exif(int orientation, bool little_endian, int before = 0);

// The same as a JPEG's segment and as a PNG's chunk.
std::string with_exif(const std::string& image, const std::string& exif);

}  // namespace etr::test
