// PNGs of every kind, by libpng's rows.
#pragma once

#include "codec/png_decoder.h"

namespace etr::codec {

// As decode_image.
Tensor decode_any_png(std::span<const std::byte> bytes, const PngOutline& outline,
                      const ImageOptions& options);

}  // namespace etr::codec
