// The common PNGs, fast.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace etr::codec {

// Error(unsupported) where a chunk is longer than `max_bytes`: what a decoder reads in one piece.
void check_png_chunks(std::span<const std::byte> bytes, uint64_t max_bytes);

// The same PNG without what says how its values look on a screen: gamma, colour profile, chromaticities.
std::vector<std::byte> without_colour_space(std::span<const std::byte> bytes);

// Decodes 8-bit gray, RGB and palette images without interlacing or transparency into u8 [H, W, C]; C is 3 where `rgb`
// is asked for and the image is gray. Nothing for every other PNG: libpng decodes those. Throws Error(corrupt_data), Error(unsupported) beyond `max_pixels`.
//
// Inflating is libdeflate's, which takes half of zlib's time because it has the whole stream and the whole result.
std::optional<Tensor> decode_common_png(std::span<const std::byte> bytes, bool rgb,
                                        int64_t max_pixels);

}  // namespace etr::codec
