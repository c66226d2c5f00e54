// A lossless image format that decodes fast: filtered planes in a zstd frame (docs/formats.md,
// "Fast shards").
#pragma once

#include <span>
#include <vector>

#include "codec/image_codec.h"

namespace etr::codec {

// Encodes `image`, u8 [H, W, 1] or [H, W, 3], losslessly. Chooses the filter and colour transform
// with the smallest result. `level` is the zstd level, 1 to 19.
std::vector<std::byte> encode_planar(const Tensor& image, int level);

// Whether the bytes begin like a planar image, that is like any zstd frame.
bool looks_planar(std::span<const std::byte> bytes);

// Returns u8 [H, W, C]; C is 3 for a gray image if RGB is requested. Throws Error(corrupt_data),
// and Error(unsupported) beyond the limits, before allocating memory.
Tensor decode_planar(std::span<const std::byte> bytes, const ImageOptions& options);

}  // namespace etr::codec
