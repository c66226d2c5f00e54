// PNGs: what their chunks say, and the common ones decoded fast.
#pragma once

#include <optional>
#include <span>

#include "codec/image_codec.h"
#include "codec/orientation.h"

namespace etr::codec {

// What is known of a PNG before anything is decompressed.
struct PngOutline {
  uint64_t data_bytes = 0;          // of compressed pixels
  std::span<const std::byte> exif;  // empty: none
};

// Error(unsupported) where a chunk is longer than the limit: what a decoder reads in one piece.
PngOutline outline_png(std::span<const std::byte> bytes, int64_t max_chunk_bytes);

// Checks the limits, and that so many pixels of `bits` can come from the compressed data: what a small file makes a decoder
// allocate is then in proportion to the file.
void check_png_size(int64_t width, int64_t height, int64_t bits, const PngOutline& outline,
                    const ImageOptions& options);

inline Orientation orientation_of(const PngOutline& outline, const ImageOptions& options) {
  return options.upright ? exif_orientation(outline.exif) : Orientation::upright;
}

// Decodes 8-bit gray, RGB and palette images without interlacing or transparency into u8 [H, W, C]; C is 3 where `rgb`
// is asked for and the image is gray. Nothing for every other PNG: libpng decodes those (png_rows.h).
//
// Inflating is libdeflate's, which takes half of zlib's time because it has the whole stream and the whole result.
std::optional<Tensor> decode_common_png(std::span<const std::byte> bytes, bool rgb,
                                        const PngOutline& outline, const ImageOptions& options);

}  // namespace etr::codec
