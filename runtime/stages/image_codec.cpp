#include "stages/image_codec.h"

#include <png.h>
#include <turbojpeg.h>

#include <cstring>
#include <memory>

#include "core/error.h"
#include "stages/png_decoder.h"

namespace etr::stages {
namespace {

void check_size(int64_t width, int64_t height) {
  if (width <= 0 || height <= 0 || width * height > kMaxPixels)
    fail(Code::unsupported, "an image of ", width, " x ", height, " pixels; the limit is ",
         kMaxPixels, " pixels");
}

Tensor decode_png(std::span<const std::byte> bytes, Channels channels) {
  if (auto common = decode_common_png(bytes, channels == Channels::rgb, channels == Channels::gray,
                                      kMaxPixels))
    return *std::move(common);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> cleanup(&image, png_image_free);
  if (!png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()))
    fail(Code::corrupt_data, "bad PNG: ", image.message);
  check_size(image.width, image.height);
  const bool rgb = channels == Channels::rgb ||
                   (channels == Channels::as_stored && (image.format & PNG_FORMAT_FLAG_COLOR));
  image.format = rgb ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  Tensor out(DType::u8, {image.height, image.width, rgb ? 3 : 1});
  // Alpha is composed onto black.
  const png_color black{0, 0, 0};
  if (!png_image_finish_read(&image, &black, out.mutable_data(), 0, nullptr))
    fail(Code::corrupt_data, "bad PNG: ", image.message);
  if (PNG_IMAGE_FAILED(image)) fail(Code::corrupt_data, "bad PNG: ", image.message);
  return out;
}

Tensor decode_jpeg(std::span<const std::byte> bytes, Channels channels) {
  // One decompressor a thread: making one costs more than decoding a small image.
  thread_local const std::unique_ptr<void, int (*)(void*)> decoder(tjInitDecompress(), tjDestroy);
  if (!decoder) fail(Code::out_of_memory, "no memory for a JPEG decoder");
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  int width = 0, height = 0, subsampling = 0, colorspace = 0;
  if (tjDecompressHeader3(decoder.get(), data, bytes.size(), &width, &height, &subsampling,
                          &colorspace) != 0)
    fail(Code::corrupt_data, "bad JPEG: ", tjGetErrorStr2(decoder.get()));
  check_size(width, height);
  const bool rgb =
      channels == Channels::rgb || (channels == Channels::as_stored && colorspace != TJCS_GRAY);
  Tensor out(DType::u8, {height, width, rgb ? 3 : 1});
  if (tjDecompress2(decoder.get(), data, bytes.size(),
                    static_cast<unsigned char*>(out.mutable_data()), width, 0, height,
                    rgb ? TJPF_RGB : TJPF_GRAY, TJFLAG_ACCURATEDCT) != 0)
    fail(Code::corrupt_data, "bad JPEG: ", tjGetErrorStr2(decoder.get()));
  return out;
}

}  // namespace

Tensor decode_image(std::span<const std::byte> bytes, Channels channels) {
  constexpr unsigned char kPng[] = {0x89, 'P', 'N', 'G'};
  constexpr unsigned char kJpeg[] = {0xFF, 0xD8, 0xFF};
  const auto starts_with = [&](std::span<const unsigned char> magic) {
    return bytes.size() >= magic.size() &&
           std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  if (starts_with(kPng)) return decode_png(bytes, channels);
  if (starts_with(kJpeg)) return decode_jpeg(bytes, channels);
  fail(Code::unsupported, "neither PNG nor JPEG (", bytes.size(), " bytes)");
}

}  // namespace etr::stages
