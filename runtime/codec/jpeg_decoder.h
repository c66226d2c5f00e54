// JPEGs, by libjpeg-turbo.
#pragma once

#include <span>
#include <string>

#include "codec/image_codec.h"

namespace etr::codec {

// As decode_image; u8 [H, W, C]. Takes every sampling, CMYK and YCCK, and files that libjpeg only warns of; what is cut off is
// Error(corrupt_data).
Tensor decode_jpeg(std::span<const std::byte> bytes, const ImageOptions& options,
                   std::string* warning);

}  // namespace etr::codec
