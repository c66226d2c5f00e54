// Decodes all kinds of PNGs row by row with libpng.
#pragma once

#include "codec/png_decoder.h"

namespace etr::codec {

// Like decode_image.
Tensor decode_any_png(std::span<const std::byte> bytes, const PngOutline& outline,
                      const ImageOptions& options);

}  // namespace etr::codec
