// What decoding an image costs: libpng, our PNG decoder (libdeflate) and planar images (fast
// shards), in turns on one thread; and how large the files are. Then PNGs with alpha and of 16
// bits, and JPEGs:
// libjpeg alone, ours, and those that are to be turned.
//
//   codec_bench [FOLDER_OF_PNGS]      without one: 224 x 224 images of smooth colours with noise
#include <png.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

// Needs <cstdio> before it.
#include <jpeglib.h>

#include "bench.h"
#include "codec/image_codec.h"
#include "codec/planar_image.h"
#include "core/error.h"
#include "core/platform.h"
#include "core/rng.h"
#include "support/images.h"

namespace etr::bench {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

Bytes as_png(const Tensor& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.height = static_cast<png_uint_32>(image.shape()[0]);
  png.width = static_cast<png_uint_32>(image.shape()[1]);
  png.format = image.shape()[2] == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&png, nullptr, &size, 0, image.data(), 0, nullptr);
  Bytes out(size);
  png_image_write_to_memory(&png, out.data(), &size, 0, image.data(), 0, nullptr);
  out.resize(size);
  return out;
}

std::vector<Bytes> drawn() {
  std::vector<Bytes> out;
  Rng rng(1);
  for (int n = 0; n < 64; ++n) {
    Tensor image(DType::u8, {224, 224, 3});
    auto* at = static_cast<uint8_t*>(image.mutable_data());
    const double a = rng.uniform() * 9 + 1, b = rng.uniform() * 9 + 1, turn = rng.uniform() * 6;
    for (int y = 0; y < 224; ++y)
      for (int x = 0; x < 224; ++x)
        for (int c = 0; c < 3; ++c)
          *at++ = static_cast<uint8_t>(128 + 60 * std::sin(a * x / 60.0 + c + turn) +
                                       50 * std::cos(b * y / 60.0 - c) + rng.below(13) - 6);
    out.push_back(as_png(image));
  }
  return out;
}

std::vector<Bytes> read(const std::string& folder) {
  std::vector<Bytes> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".png") {
      const std::string bytes = platform::read_file(entry.path());
      const auto view = std::as_bytes(std::span(bytes));
      out.emplace_back(view.begin(), view.end());
    }
  if (out.empty()) fail(Code::not_found, "there is no .png in '", folder, "'");
  return out;
}

void decode_by_libpng(const Bytes& bytes) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()))
    fail(Code::corrupt_data, image.message);
  image.format = PNG_FORMAT_RGB;
  Tensor out(DType::u8, {image.height, image.width, 3});
  png_image_finish_read(&image, nullptr, out.mutable_data(), 0, nullptr);
}

void run(const std::vector<Bytes>& pngs) {
  std::vector<Bytes> packed;
  double png_bytes = 0, packed_bytes = 0, pixels = 0;
  for (const Bytes& png : pngs) {
    const Tensor image = codec::decode_image(png);
    packed.push_back(codec::encode_planar(image, 3));
    png_bytes += static_cast<double>(png.size());
    packed_bytes += static_cast<double>(packed.back().size());
    pixels += static_cast<double>(image.shape()[0] * image.shape()[1]);
  }
  const auto each = [](const std::vector<Bytes>& files, auto decode) {
    return [&files, decode] {
      for (const Bytes& bytes : files) decode(bytes);
    };
  };
  const auto ours = [](const Bytes& bytes) {
    codec::decode_image(bytes, {.channels = codec::Channels::rgb});
  };
  const auto times =
      time_in_turn({each(pngs, decode_by_libpng), each(pngs, ours), each(packed, ours)}, 9);
  const auto n = static_cast<double>(pngs.size());
  std::printf("%.0f images of %.0f pixels on average\n", n, pixels / n);
  const char* const names[] = {"libpng", "PNG, ours", "planar"};
  for (size_t i = 0; i < 3; ++i)
    std::printf("%-10s %7.1f us an image, %.3f of libpng's time\n", names[i], times[i] / n * 1e6,
                times[i] / times[0]);
  std::printf("bytes: planar %.3f of the PNGs'\n", packed_bytes / png_bytes);
}

void decode_by_libjpeg(const std::string& bytes) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()),
               static_cast<unsigned long>(bytes.size()));
  jpeg_read_header(&info, TRUE);
  jpeg_start_decompress(&info);
  Tensor out = Tensor::off_boundary(DType::u8, {info.output_height, info.output_width, 3});
  auto* pixels = static_cast<unsigned char*>(out.mutable_data());
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels + size_t{info.output_scanline} * info.output_width * 3;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_destroy_decompress(&info);
}

// The same size in every kind.
void run_kinds(int side) {
  const std::string jpeg = test::smooth_jpeg({.sampling = {{2, 2}, {1, 1}, {1, 1}}}, side, side);
  const std::string turned = test::with_exif(jpeg, test::exif(6, true));
  const auto png = [&](int bits, int colour) {
    const auto n = static_cast<uint32_t>(side);
    return test::write_png({bits, colour}, n, n, 1);
  };
  const std::string alpha = png(8, PNG_COLOR_TYPE_RGB_ALPHA), deep = png(16, PNG_COLOR_TYPE_RGB);
  const std::string plain = png(8, PNG_COLOR_TYPE_RGB);
  const std::string upright = test::with_exif(plain, test::exif(6, true));
  const int repeats = (1 << 22) / (side * side);
  const auto ours = [&](const std::string& bytes) {
    return [&bytes, repeats] {
      for (int i = 0; i < repeats; ++i)
        codec::decode_image(test::bytes_of(bytes), {.channels = codec::Channels::rgb});
    };
  };
  const auto alone = [&] {
    for (int i = 0; i < repeats; ++i) decode_by_libjpeg(jpeg);
  };
  const auto times = time_in_turn(
      {alone, ours(jpeg), ours(turned), ours(plain), ours(upright), ours(alpha), ours(deep)}, 9);
  const char* const names[] = {"JPEG, libjpeg alone", "JPEG",       "JPEG, turned", "PNG",
                               "PNG, turned",         "PNG, alpha", "PNG, 16 bits"};
  for (size_t i = 0; i < std::size(names); ++i)
    std::printf("%4d x %-4d %-20s %9.2f us\n", side, side, names[i], times[i] / repeats * 1e6);
}

}  // namespace
}  // namespace etr::bench

int main(int argc, char** argv) {
  try {
    etr::bench::run(argc > 1 ? etr::bench::read(argv[1]) : etr::bench::drawn());
    for (const int side : {32, 224, 1024}) etr::bench::run_kinds(side);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "codec_bench: %s\n", error.what());
    return 1;
  }
}
