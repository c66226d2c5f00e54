// Decoders for compressed images.
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
constexpr int64_t kMaxScans = 100;  // libvips draws the line there; encoders write about ten

struct ImageOptions {
  Channels channels = Channels::as_stored;
  bool keep_u16 = false;  // 16-bit PNGs become u16 and not u8
  bool upright = true;    // turned and mirrored as EXIF says
  int64_t max_pixels = kMaxPixels;
  int64_t max_chunk_bytes = kMaxChunkBytes;  // of a PNG's chunk
  int64_t max_scans = kMaxScans;             // of a JPEG
  // JPEGs may come out at a half, a quarter or an eighth of their size, as long as the shorter side keeps so many
  // pixels, which is quicker where the next stage shrinks anyway; 0: in full.
  int64_t least_side = 0;
  ByteGate* memory = nullptr;       // for the image and what its decoder needs; nullptr: no limit
  std::function<bool()> cancelled;  // asked often; true ends decoding with Error(cancelled)
};

// PNG, JPEG and planar images (planar_image.h), told apart by their first bytes. Result: [H, W, 1] or [H, W, 3] of u8, or u16 as
// `keep_u16` says. What the file has beyond gray or RGB is converted (palette, CMYK), 16 bits are scaled to 8 and rounded, alpha is
// composed onto black (value * alpha), and colour becomes gray by ITU-R BT.601. Values are as stored: gamma and colour profiles are
// not applied, as in Pillow and TensorFlow.
//
// Throws Error(corrupt_data) for damaged or truncated data, Error(unsupported) for other formats and for what is beyond the limits,
// before memory is taken. What libjpeg only warns of is decoded all the same, and said in `warning`.
Tensor decode_image(std::span<const std::byte> bytes, const ImageOptions& options = {},
                    std::string* warning = nullptr);

}  // namespace etr::codec
