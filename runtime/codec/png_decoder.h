// Parses the chunks of PNGs, and decodes the common kinds fast.
#pragma once

#include <optional>
#include <span>

#include "codec/image_codec.h"
#include "codec/orientation.h"

namespace etr::codec {

// What is known about a PNG before decompression.
struct PngOutline {
  uint64_t data_bytes = 0;          // size of the compressed pixels
  std::span<const std::byte> exif;  // empty: none
};

// Throws Error(unsupported) if a chunk, which decoders read in one piece, exceeds the limit.
PngOutline outline_png(std::span<const std::byte> bytes, int64_t max_chunk_bytes);

// Checks the limits, and that the compressed data can hold this many pixels of `bits`. The memory
// that a decoder allocates is then proportional to the file.
void check_png_size(int64_t width, int64_t height, int64_t bits, const PngOutline& outline,
                    const ImageOptions& options);

inline Orientation orientation_of(const PngOutline& outline, const ImageOptions& options) {
  return options.upright ? exif_orientation(outline.exif) : Orientation::upright;
}

// Decodes 8-bit gray, RGB and palette images without interlacing or transparency to u8 [H, W, C]; C
// is 3 for a gray image if `rgb` is requested. Returns nothing for other PNGs, which libpng decodes
// (png_rows.h).
//
// Uses libdeflate, which takes half of zlib's time because it has the whole input and output at
// hand.
std::optional<Tensor> decode_common_png(std::span<const std::byte> bytes, bool rgb,
                                        const PngOutline& outline, const ImageOptions& options);

}  // namespace etr::codec
