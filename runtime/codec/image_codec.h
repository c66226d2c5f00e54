// Image decoding.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "core/byte_gate.h"
#include "tensor/tensor.h"

namespace etr::codec {

enum class Channels { as_stored, gray, rgb };

constexpr int64_t kMaxPixels = int64_t{1} << 28;
constexpr int64_t kMaxChunkBytes = int64_t{1} << 31;
constexpr int64_t kMaxScans = 100;  // the limit of libvips; encoders write about ten

struct ImageOptions {
  Channels channels = Channels::as_stored;
  bool keep_u16 = false;  // decode 16-bit PNGs to u16, not u8
  bool upright = true;    // apply the EXIF orientation
  int64_t max_pixels = kMaxPixels;
  int64_t max_chunk_bytes = kMaxChunkBytes;  // of a PNG chunk
  int64_t max_scans = kMaxScans;             // of a JPEG
  // JPEGs may be decoded at 1/2, 1/4 or 1/8 of their size as long as the shorter side keeps this
  // many pixels, which is faster if the next stage shrinks the image anyway. 0: full size.
  int64_t min_side = 0;
  ByteGate* memory = nullptr;       // for the image and its decoder; nullptr: no limit
  std::function<bool()> cancelled;  // polled often; true ends decoding with Error(cancelled)
};

// Decodes PNG, JPEG and planar images (planar_image.h), recognised by their first bytes. Returns u8
// [H, W, 1] or [H, W, 3], or u16 with `keep_u16`. Palettes and CMYK become RGB or gray, 16 bits are
// rounded to 8, alpha is composited over black (value * alpha), and colour becomes gray by ITU-R
// BT.601. Gamma and colour profiles are not applied, as in Pillow and TensorFlow.
//
// Throws Error(corrupt_data) for damaged or truncated data, and Error(unsupported) for other
// formats and beyond the limits, before allocating memory. If libjpeg only warns, the image is
// decoded and `warning` set.
Tensor decode_image(std::span<const std::byte> bytes, const ImageOptions& options = {},
                    std::string* warning = nullptr);

}  // namespace etr::codec
