#include "codec/image_codec.h"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "codec/planar_image.h"
#include "codec/png_decoder.h"
#include "core/error.h"

namespace etr::codec {
namespace {

void check_size(int64_t width, int64_t height, int64_t max_pixels) {
  if (width <= 0 || height <= 0 || width > max_pixels / height)
    fail(Code::unsupported, "an image of ", width, " x ", height, " pixels; the limit is ",
         max_pixels, " pixels");
}

// Values as stored: decoders for training leave gamma and colour profiles alone, and so did whoever made the numbers
// that a model is compared with.
Tensor decode_png(std::span<const std::byte> bytes, bool rgb, int64_t max_pixels) {
  if (auto common = decode_common_png(bytes, rgb, max_pixels)) return *std::move(common);
  const std::vector<std::byte> plain = without_colour_space(bytes);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> cleanup(&image, png_image_free);
  if (!png_image_begin_read_from_memory(&image, plain.data(), plain.size()))
    fail(Code::corrupt_data, "bad PNG: ", image.message);
  check_size(image.width, image.height, max_pixels);
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // 16 bits would be taken for linear light
  rgb = rgb || (image.format & PNG_FORMAT_FLAG_COLOR);
  image.format = rgb ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  Tensor out(DType::u8, {image.height, image.width, rgb ? 3 : 1});
  // Alpha is composed onto black.
  const png_color black{0, 0, 0};
  if (!png_image_finish_read(&image, &black, out.mutable_data(), 0, nullptr))
    fail(Code::corrupt_data, "bad PNG: ", image.message);
  if (PNG_IMAGE_FAILED(image)) fail(Code::corrupt_data, "bad PNG: ", image.message);
  return out;
}

// ITU-R BT.601
uint8_t luma(const uint8_t* rgb) {
  return static_cast<uint8_t>((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000);
}

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

// Inks as Adobe's programs store them, 255 for none, to RGB.
void cmyk_to_rgb(const std::vector<unsigned char>& cmyk, uint8_t* out, bool rgb) {
  for (size_t i = 0; i + 3 < cmyk.size(); i += 4) {
    uint8_t pixel[3];
    for (size_t c = 0; c < 3; ++c)
      pixel[c] = static_cast<uint8_t>((cmyk[i + c] * cmyk[i + 3] + 127) / 255);
    if (rgb)
      out = std::copy(pixel, pixel + 3, out);
    else
      *out++ = luma(pixel);
  }
}

// The smallest size at which the decoder can stop and both sides keep `least` pixels.
void shrink(int& width, int& height, int64_t least) {
  const int full_width = width, full_height = height;
  for (const int denominator : {2, 4, 8}) {
    const tjscalingfactor factor{1, denominator};
    const int w = TJSCALED(full_width, factor), h = TJSCALED(full_height, factor);
    if (std::min(w, h) < least) return;
    width = w;
    height = h;
  }
}

Tensor decode_jpeg(std::span<const std::byte> bytes, Channels channels, int64_t max_pixels,
                   int64_t least_side) {
  // One decompressor a thread: making one costs more than decoding a small image.
  thread_local const std::unique_ptr<void, int (*)(void*)> decoder(tjInitDecompress(), tjDestroy);
  if (!decoder) fail(Code::out_of_memory, "no memory for a JPEG decoder");
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  int width = 0, height = 0, subsampling = 0, colorspace = 0;
  if (tjDecompressHeader3(decoder.get(), data, bytes.size(), &width, &height, &subsampling,
                          &colorspace) != 0)
    fail(Code::corrupt_data, "bad JPEG: ", tjGetErrorStr2(decoder.get()));
  check_size(width, height, max_pixels);
  if (least_side > 0) shrink(width, height, least_side);
  const bool rgb =
      channels == Channels::rgb || (channels == Channels::as_stored && colorspace != TJCS_GRAY);
  Tensor out = Tensor::off_boundary(DType::u8, {height, width, rgb ? 3 : 1});
  const bool inks = colorspace == TJCS_CMYK || colorspace == TJCS_YCCK;
  std::vector<unsigned char> cmyk(
      inks ? 4 * static_cast<size_t>(width) * static_cast<size_t>(height) : 0);
  auto* pixels = static_cast<unsigned char*>(out.mutable_data());
  const int format = inks ? TJPF_CMYK : rgb ? TJPF_RGB : TJPF_GRAY;
  if (tjDecompress2(decoder.get(), data, bytes.size(), inks ? cmyk.data() : pixels, width, 0,
                    height, format, TJFLAG_ACCURATEDCT) != 0)
    fail(Code::corrupt_data, "bad JPEG: ", tjGetErrorStr2(decoder.get()));
  if (inks) cmyk_to_rgb(cmyk, pixels, rgb);
  return out;
}

}  // namespace

Tensor decode_image(std::span<const std::byte> bytes, Channels channels, int64_t max_pixels,
                    int64_t max_chunk_bytes, int64_t least_side) {
  constexpr unsigned char kPng[] = {0x89, 'P', 'N', 'G'};
  constexpr unsigned char kJpeg[] = {0xFF, 0xD8, 0xFF};
  const auto starts_with = [&](std::span<const unsigned char> magic) {
    return bytes.size() >= magic.size() &&
           std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  if (starts_with(kPng)) {
    check_png_chunks(bytes, static_cast<uint64_t>(max_chunk_bytes));
    return to_channels(decode_png(bytes, channels == Channels::rgb, max_pixels), channels);
  }
  if (starts_with(kJpeg)) return decode_jpeg(bytes, channels, max_pixels, least_side);
  if (looks_planar(bytes))
    return to_channels(decode_planar(bytes, channels == Channels::rgb, max_pixels), channels);
  fail(Code::unsupported, "neither PNG nor JPEG (", bytes.size(), " bytes)");
}

}  // namespace etr::codec
