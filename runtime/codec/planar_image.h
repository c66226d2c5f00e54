// Images that decode fast: filtered planes in a zstd frame (docs/formats.md, "Fast shards").
#pragma once

#include <span>
#include <vector>

#include "codec/image_codec.h"

namespace etr::codec {

// `image`: u8 [H, W, 1] or [H, W, 3]. The filter and the colour transform that come out smallest are taken;
// `level` is zstd's, 1 to 19. Lossless.
std::vector<std::byte> encode_planar(const Tensor& image, int level);

// Whether these bytes begin as encode_planar's do (the begin of any zstd frame).
bool looks_planar(std::span<const std::byte> bytes);

// u8 [H, W, C]; C is 3 where RGB is asked for and the image is gray. Throws Error(corrupt_data), and
// Error(unsupported) beyond the limits, before memory is taken.
Tensor decode_planar(std::span<const std::byte> bytes, const ImageOptions& options);

}  // namespace etr::codec
