// JPEG decoding, by libjpeg-turbo.
#pragma once

#include <span>
#include <string>

#include "codec/image_codec.h"

namespace etr::codec {

// Like decode_image, returning u8 [H, W, C]. Accepts all sampling factors, CMYK and YCCK, and files
// that libjpeg only warns about. Truncated data is Error(corrupt_data).
Tensor decode_jpeg(std::span<const std::byte> bytes, const ImageOptions& options,
                   std::string* warning);

}  // namespace etr::codec
