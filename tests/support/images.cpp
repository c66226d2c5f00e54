#include "support/images.h"

#include <png.h>
#include <zlib.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// Needs <cstdio> before it.
#include <jpeglib.h>

#include "core/rng.h"

namespace etr::test {
namespace {

std::string big_endian(uint32_t n) {
  return {static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8),
          static_cast<char>(n)};
}

std::string png_chunk(const std::string& type, const std::string& body) {
  const std::string named = type + body;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(named.data()), static_cast<uInt>(named.size()));
  return big_endian(static_cast<uint32_t>(body.size())) + named +
         big_endian(static_cast<uint32_t>(crc));
}

void add_palette(png_structp png, png_infop info, const PngKind& kind, int colours) {
  std::vector<png_color> palette;
  std::vector<png_byte> alpha;
  for (int i = 0; i < colours; ++i) {
    palette.push_back({static_cast<png_byte>(i * 37), static_cast<png_byte>(255 - i),
                       static_cast<png_byte>(i * 7)});
    alpha.push_back(static_cast<png_byte>(i * 91 + 5));
  }
  png_set_PLTE(png, info, palette.data(), colours);
  // Fewer entries than colours: the rest is opaque.
  if (kind.transparency) png_set_tRNS(png, info, alpha.data(), (colours + 1) / 2, nullptr);
}

// Makes rows of samples of one byte, or of two for 16 bits.
std::vector<std::vector<png_byte>> make_rows(const PngKind& kind, uint32_t height, size_t row,
                                             int colours, uint32_t seed) {
  std::vector<std::vector<png_byte>> rows(height, std::vector<png_byte>(row));
  Rng rng(seed);
  for (uint32_t y = 0; y < height; ++y)
    for (size_t i = 0; i < row; ++i) {
      auto value =
          static_cast<uint32_t>(i) + 3 * y + (rng.below(4) ? rng.below(5) : rng.below(256));
      if (colours) value %= static_cast<uint32_t>(colours);
      if (kind.bits < 8) value %= 1u << kind.bits;
      rows[y][i] = static_cast<png_byte>(value);
    }
  return rows;
}

// Makes the first pixel's value the transparent one.
void add_transparency(png_structp png, png_infop info, const PngKind& kind, const png_byte* pixel) {
  const auto sample = [&](int c) {
    return static_cast<png_uint_16>(kind.bits == 16 ? pixel[2 * c] << 8 | pixel[2 * c + 1]
                                                    : pixel[c]);
  };
  png_color_16 value{};
  value.gray = value.red = sample(0);
  if (kind.colour == PNG_COLOR_TYPE_RGB) value.green = sample(1), value.blue = sample(2);
  png_set_tRNS(png, info, nullptr, 0, &value);
}

struct Compressor {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;

  Compressor() {
    info.err = jpeg_std_error(&errors);
    errors.error_exit = [](j_common_ptr c) {
      c->err->output_message(c);
      std::abort();
    };
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &bytes, &size);
  }
  ~Compressor() {
    jpeg_destroy_compress(&info);
    std::free(bytes);
  }
};

}  // namespace

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::string write_png(const PngKind& kind, uint32_t width, uint32_t height, uint32_t seed) {
  std::string out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &out,
      [](png_structp p, png_bytep data, size_t size) {
        static_cast<std::string*>(png_get_io_ptr(p))->append(reinterpret_cast<char*>(data), size);
      },
      nullptr);
  png_set_IHDR(png, info, width, height, kind.bits, kind.colour,
               kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_filter(png, 0, kind.filters);
  png_set_compression_buffer_size(png, 100);
  const bool indexed = kind.colour == PNG_COLOR_TYPE_PALETTE;
  const int colours = !indexed ? 0 : kind.palette ? kind.palette : 1 << kind.bits;
  const size_t samples = png_get_channels(png, info);
  auto rows = make_rows(kind, height, width * samples * (kind.bits == 16 ? 2 : 1), colours, seed);
  if (indexed)
    add_palette(png, info, kind, colours);
  else if (kind.transparency)
    add_transparency(png, info, kind, rows[0].data());
  png_write_info(png, info);
  if (kind.bits < 8) png_set_packing(png);
  std::vector<png_bytep> pointers;
  for (auto& row : rows) pointers.push_back(row.data());
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

std::string with_chunk(const std::string& png, const std::string& type, const std::string& body,
                       bool last) {
  const size_t at = last ? png.size() - 12 : 8 + 25;
  return png.substr(0, at) + png_chunk(type, body) + png.substr(at);
}

std::string assemble_png(uint32_t width, uint32_t height, int bits, int colour,
                         const std::string& rows, bool interlaced) {
  uLongf size = compressBound(rows.size());
  std::string data(size, '\0');
  compress(reinterpret_cast<Bytef*>(data.data()), &size,
           reinterpret_cast<const Bytef*>(rows.data()), rows.size());
  const std::string kind = {static_cast<char>(bits), static_cast<char>(colour), 0, 0,
                            static_cast<char>(interlaced)};
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", big_endian(width) + big_endian(height) + kind) +
         png_chunk("IDAT", data.substr(0, size)) + png_chunk("IEND", "");
}

std::string write_jpeg(const JpegKind& kind, int width, int height,
                       std::span<const uint8_t> pixels) {
  Compressor c;
  c.info.image_width = static_cast<JDIMENSION>(width);
  c.info.image_height = static_cast<JDIMENSION>(height);
  c.info.input_components = kind.channels;
  c.info.in_color_space = kind.channels == 1   ? JCS_GRAYSCALE
                          : kind.channels == 3 ? JCS_RGB
                                               : JCS_CMYK;
  jpeg_set_defaults(&c.info);
  if (kind.stores_as_given) jpeg_set_colorspace(&c.info, c.info.in_color_space);
  if (kind.channels == 4 && !kind.stores_as_given) jpeg_set_colorspace(&c.info, JCS_YCCK);
  jpeg_set_quality(&c.info, kind.quality, TRUE);
  for (size_t i = 0; i < kind.sampling.size(); ++i) {
    c.info.comp_info[i].h_samp_factor = kind.sampling[i].first;
    c.info.comp_info[i].v_samp_factor = kind.sampling[i].second;
  }
  if (kind.progressive) jpeg_simple_progression(&c.info);
  jpeg_start_compress(&c.info, TRUE);
  const size_t row = static_cast<size_t>(width * kind.channels);
  while (c.info.next_scanline < c.info.image_height) {
    auto* line = const_cast<uint8_t*>(pixels.data()) + c.info.next_scanline * row;
    jpeg_write_scanlines(&c.info, &line, 1);
  }
  jpeg_finish_compress(&c.info);
  return {reinterpret_cast<const char*>(c.bytes), c.size};
}

std::vector<uint8_t> smooth_pixels(int width, int height, int channels) {
  std::vector<uint8_t> out;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        out.push_back(
            static_cast<uint8_t>(128 + 60 * std::sin(x * 0.09 + c) + 50 * std::cos(y * 0.07 - c)));
  return out;
}

std::string smooth_jpeg(const JpegKind& kind, int width, int height) {
  return write_jpeg(kind, width, height, smooth_pixels(width, height, kind.channels));
}

std::string with_segment(const std::string& jpeg, uint8_t marker, const std::string& body) {
  const size_t length = body.size() + 2;
  return jpeg.substr(0, 2) + '\xFF' + static_cast<char>(marker) + static_cast<char>(length >> 8) +
         static_cast<char>(length) + body + jpeg.substr(2);
}

std::string exif(int orientation, bool little_endian, int before) {
  std::string out = little_endian ? "II" : "MM";
  const auto number = [&](uint32_t value, int size) {
    for (int i = 0; i < size; ++i)
      out += static_cast<char>(value >> 8 * (little_endian ? i : size - 1 - i));
  };
  number(42, 2);
  number(8, 4);
  number(static_cast<uint32_t>(before + 1), 2);
  for (int i = 0; i < before; ++i) {  // an image width entry: LONG
    number(0x0100, 2);
    number(4, 2);
    number(1, 4);
    number(77, 4);
  }
  number(0x0112, 2);
  number(3, 2);
  number(1, 4);
  number(static_cast<uint32_t>(orientation), 2);
  number(0, 2);
  number(0, 4);
  return out;
}

std::string with_exif(const std::string& image, const std::string& exif) {
  if (image[0] == '\xFF') return with_segment(image, 0xE1, std::string("Exif\0\0", 6) + exif);
  return with_chunk(image, "eXIf", exif);
}

}  // namespace etr::test
