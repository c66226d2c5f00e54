#include "codec/image_codec.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "codec/jpeg_decoder.h"
#include "codec/luma.h"
#include "codec/planar_image.h"
#include "codec/png_rows.h"
#include "core/error.h"

namespace etr::codec {
namespace {

Tensor to_channels(Tensor image, Channels channels) {
  if (channels != Channels::gray || image.shape()[2] == 1) return image;
  Tensor out(DType::u8, {image.shape()[0], image.shape()[1], 1});
  const uint8_t* pixel = image.view<uint8_t>().data();
  for (uint8_t& gray : out.mutable_view<uint8_t>()) {
    gray = luma(pixel);
    pixel += 3;
  }
  return out;
}

Tensor decode_png(std::span<const std::byte> bytes, const ImageOptions& options) {
  const PngOutline outline = outline_png(bytes, options.max_chunk_bytes);
  const bool rgb = options.channels == Channels::rgb;
  if (auto common = decode_common_png(bytes, rgb, outline, options))
    return to_channels(*std::move(common), options.channels);
  return decode_any_png(bytes, outline, options);
}

// Names an unsupported format, as part of the error's sentence.
std::string other_format(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  static constexpr std::pair<std::string_view, const char*> kMagics[] = {
      {"GIF8", "GIF"}, {"BM", "BMP"}, {"II*", "TIFF"}, {"MM", "TIFF"}, {"<svg", "SVG"}};
  if (text.starts_with("RIFF") && text.substr(0, 12).ends_with("WEBP")) return " but WebP";
  if (text.substr(0, 12).find("ftyp") == 4) return " but HEIC, AVIF or a video";
  for (const auto& [magic, name] : kMagics)
    if (text.starts_with(magic)) return std::string(" but ") + name;
  return "";
}

}  // namespace

Tensor decode_image(std::span<const std::byte> bytes, const ImageOptions& options,
                    std::string* warning) {
  constexpr unsigned char kPng[] = {0x89, 'P', 'N', 'G'};
  constexpr unsigned char kJpeg[] = {0xFF, 0xD8, 0xFF};
  const auto starts_with = [&](std::span<const unsigned char> magic) {
    return bytes.size() >= magic.size() &&
           std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  if (starts_with(kPng)) return decode_png(bytes, options);
  if (starts_with(kJpeg)) return decode_jpeg(bytes, options, warning);
  if (looks_planar(bytes)) return to_channels(decode_planar(bytes, options), options.channels);
  if (bytes.empty()) fail(Code::corrupt_data, "the image is empty (0 bytes)");
  fail(Code::unsupported, "neither PNG nor JPEG", other_format(bytes), " (", bytes.size(),
       " bytes)");
}

}  // namespace etr::codec
