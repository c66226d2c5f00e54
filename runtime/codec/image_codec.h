// Decoders for compressed images.
#pragma once

#include <span>

#include "tensor/tensor.h"

namespace etr::codec {

enum class Channels { as_stored, gray, rgb };

// PNG, JPEG and planar images (planar_image.h), told apart by their first bytes. Result: u8 [H, W, 1] or [H, W, 3]; what the file
// has beyond 8-bit gray or RGB (palette, 16 bit, CMYK) is converted, alpha composed onto black, and colour becomes gray by ITU-R
// BT.601. Values are as stored: gamma and colour profiles are not applied, as in Pillow and TensorFlow. Throws Error(corrupt_data)
// for damaged or truncated data, Error(unsupported) for other formats and for images of more than
// `max_pixels`, which a small file could otherwise decompress to.
constexpr int64_t kMaxPixels = int64_t{1} << 28;
constexpr int64_t kMaxChunkBytes = int64_t{1} << 31;  // of a PNG's chunk

// `least_side`: JPEGs may come out at a half, a quarter or an eighth of their size, as long as the shorter side
// keeps so many pixels, which is quicker where the next stage shrinks anyway; 0: in full.
Tensor decode_image(std::span<const std::byte> bytes, Channels channels,
                    int64_t max_pixels = kMaxPixels, int64_t max_chunk_bytes = kMaxChunkBytes,
                    int64_t least_side = 0);

}  // namespace etr::codec
