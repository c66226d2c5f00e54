// Every kind of PNG, compared with libpng's rows.
#include <gtest/gtest.h>
#include <png.h>
#include <zlib.h>

#include <cmath>
#include <cstring>

#include "codec/image_codec.h"
#include "core/error.h"
#include "core/rng.h"
#include "support/data.h"
#include "support/images.h"

namespace etr::test {
namespace {

using codec::Channels;
using codec::decode_image;

TEST(DecodePng, IsExact) {
  const Tensor rgb = decode_image(bytes_of(make_png(5, 3, 3, 2)));
  ASSERT_EQ(rgb.shape(), (Shape{3, 5, 3}));
  for (size_t i = 0; i < 45; ++i)
    EXPECT_EQ(rgb.view<uint8_t>()[i], static_cast<uint8_t>(i * 7 + 62));
  const std::string gray = make_png(5, 3, 1, 0);
  EXPECT_EQ(decode_image(bytes_of(gray)).shape(), (Shape{3, 5, 1}));
  EXPECT_EQ(decode_image(bytes_of(gray), {.channels = Channels::rgb}).shape(), (Shape{3, 5, 3}));
  EXPECT_EQ(decode_image(bytes_of(make_png(5, 3, 3, 0)), {.channels = Channels::gray}).shape(),
            (Shape{3, 5, 1}));
}

// The samples as libpng's row interface gives them, alpha last.
struct Samples {
  int64_t height, width;
  size_t channels;
  int bits;
  std::vector<double> values;
};

struct Input {
  const std::string& bytes;
  size_t at = 0;
};

Samples rows_of_libpng(const std::string& bytes) {
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  Input input{bytes};
  png_set_read_fn(png, &input, [](png_structp p, png_bytep to, size_t size) {
    auto& from = *static_cast<Input*>(png_get_io_ptr(p));
    std::memcpy(to, from.bytes.data() + from.at, size);
    from.at += size;
  });
  png_read_info(png, info);
  png_set_expand(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  Samples out{png_get_image_height(png, info),
              png_get_image_width(png, info),
              png_get_channels(png, info),
              png_get_bit_depth(png, info),
              {}};
  const size_t row = png_get_rowbytes(png, info);
  std::vector<png_byte> memory(static_cast<size_t>(out.height) * row);
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < out.height; ++y)
    rows.push_back(memory.data() + static_cast<size_t>(y) * row);
  png_read_image(png, rows.data());
  png_destroy_read_struct(&png, &info, nullptr);
  for (size_t i = 0; i < memory.size(); i += out.bits == 16 ? 2 : 1)
    out.values.push_back(out.bits == 16 ? memory[i] << 8 | memory[i + 1] : memory[i]);
  return out;
}

double rounded(double value) { return std::floor(value + 0.5 + 1e-9); }

// What decode_image says that it makes of them.
template <typename T>
Tensor expected_of(const Samples& from, Channels channels) {
  const double full = from.bits == 16 ? 65535 : 255, wanted = sizeof(T) == 2 ? 65535 : 255;
  const bool alpha = from.channels % 2 == 0, colour = from.channels >= 3;
  const bool rgb = channels == Channels::rgb || (channels == Channels::as_stored && colour);
  Tensor out(sizeof(T) == 2 ? DType::u16 : DType::u8, {from.height, from.width, rgb ? 3 : 1});
  T* to = out.mutable_view<T>().data();
  for (size_t at = 0; at < from.values.size(); at += from.channels) {
    double v[3];
    for (size_t c = 0; c < 3; ++c) {
      v[c] = from.values[at + (colour ? c : 0)];
      if (alpha) v[c] = rounded(v[c] * from.values[at + from.channels - 1] / full);
      v[c] = rounded(v[c] * wanted / full);
    }
    for (size_t c = 0; c < (rgb ? 3 : 1); ++c)
      *to++ = static_cast<T>(rgb || !colour ? v[c]
                                            : rounded(0.299 * v[0] + 0.587 * v[1] + 0.114 * v[2]));
  }
  return out;
}

void expect_as_libpng(const std::string& bytes, const std::string& what) {
  const Samples samples = rows_of_libpng(bytes);
  for (const Channels channels : {Channels::as_stored, Channels::gray, Channels::rgb})
    for (const bool keep : {false, true}) {
      const Tensor got = decode_image(bytes_of(bytes), {.channels = channels, .keep_u16 = keep});
      const Tensor expected = keep && samples.bits == 16 ? expected_of<uint16_t>(samples, channels)
                                                         : expected_of<uint8_t>(samples, channels);
      ASSERT_TRUE(same(got, expected))
          << what << ", channels " << static_cast<int>(channels) << (keep ? ", u16" : "");
    }
}

// Calls f with each kind of image: colour type, bits, transparency, colours in the palette.
template <typename F>
void each_kind(F&& f) {
  for (const int colour : {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_PALETTE,
                           PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB_ALPHA})
    for (const int bits : {1, 2, 4, 8, 16}) {
      const bool indexed = colour == PNG_COLOR_TYPE_PALETTE;
      if (bits < 8 && colour != PNG_COLOR_TYPE_GRAY && !indexed) continue;
      if (bits == 16 && indexed) continue;
      for (const bool interlaced : {false, true})
        for (const bool transparency : {false, true})
          for (const int palette : {0, 1, (1 << bits) - 1}) {
            if (palette && !indexed) continue;
            if (transparency && colour & PNG_COLOR_MASK_ALPHA) continue;
            PngKind kind{bits, colour, interlaced};
            kind.transparency = transparency;
            kind.palette = palette;
            f(kind);
          }
    }
}

std::string text_of(const PngKind& kind) {
  return cat("colour ", kind.colour, ", ", kind.bits, " bits",
             kind.interlaced ? ", interlaced" : "", kind.transparency ? ", transparent" : "",
             ", palette ", kind.palette);
}

TEST(DecodePng, EveryKindIsWhatItsRowsSay) {
  uint32_t seed = 0;
  each_kind([&](PngKind kind) {
    for (const int filters : {PNG_FILTER_NONE, PNG_FILTER_SUB, PNG_FILTER_UP, PNG_FILTER_AVG,
                              PNG_FILTER_PAETH, PNG_ALL_FILTERS}) {
      kind.filters = filters;
      ++seed;
      const std::string bytes = write_png(kind, 13 + seed % 5, 7 + seed % 3, seed);
      expect_as_libpng(bytes, cat(text_of(kind), ", filters ", filters));
    }
  });
  EXPECT_GT(seed, 300u);
}

// Each row by itself, as an encoder may choose.
TEST(DecodePng, FiltersMayChangeFromRowToRow) {
  Rng rng(1);
  for (int turn = 0; turn < 200; ++turn)
    for (const int colour : {PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_GRAY}) {
      const uint32_t width = 1 + rng.below(6), height = 1 + rng.below(6);
      std::string rows;
      for (uint32_t y = 0; y < height; ++y) {
        rows += static_cast<char>(rng.below(2) ? 4 : rng.below(5));
        for (uint32_t i = 0; i < width * (colour == PNG_COLOR_TYPE_RGB ? 3 : 1); ++i)
          rows += static_cast<char>(rng.below(2) ? 4 : rng.below(256));  // 4 is a filter, too
      }
      expect_as_libpng(assemble_png(width, height, 8, colour, rows), cat("turn ", turn));
    }
}

TEST(DecodePng, SmallImagesLackSomeOfAdam7sPasses) {
  for (uint32_t height = 1; height <= 9; ++height)
    for (uint32_t width = 1; width <= 9; ++width)
      for (const int bits : {1, 8, 16})
        expect_as_libpng(write_png({bits, PNG_COLOR_TYPE_GRAY, true}, width, height, 1),
                         cat(width, " x ", height, ", ", bits, " bits"));
}

TEST(DecodePng, ColourSpacesLeaveValuesAsStored) {
  const std::string linear("\x00\x01\x86\xa0", 4);  // gamma 1.0
  const std::string display("\x00\x00\xb1\x8f", 4);
  const std::string chromaticities(std::string("\x00\x00\x7a\x26", 4) + std::string(28, '\x10'));
  each_kind([&](const PngKind& kind) {
    const std::string plain = write_png(kind, 17, 9, 3);
    const Tensor expected = decode_image(bytes_of(plain), {.keep_u16 = true});
    const std::string bits(kind.colour == PNG_COLOR_TYPE_GRAY         ? 1
                           : kind.colour == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                           : kind.colour == PNG_COLOR_TYPE_RGB_ALPHA  ? 4
                                                                      : 3,
                           '\1');
    for (const std::string& other :
         {with_chunk(plain, "gAMA", linear), with_chunk(plain, "gAMA", display),
          with_chunk(plain, "sRGB", std::string(1, '\0')),
          with_chunk(with_chunk(plain, "gAMA", display), "cHRM", chromaticities),
          with_chunk(with_chunk(plain, "gAMA", linear), "sBIT", bits)})
      EXPECT_TRUE(same(decode_image(bytes_of(other), {.keep_u16 = true}), expected))
          << text_of(kind);
  });
}

TEST(DecodePng, AlphaIsThePlainProduct) {
  const auto pixel = [](int bits, int colour, const std::string& samples, bool keep_u16 = false) {
    const std::string png = assemble_png(1, 1, bits, colour, std::string(1, '\0') + samples);
    const Tensor image = decode_image(bytes_of(png), {.keep_u16 = keep_u16});
    std::vector<int> out;
    for (int64_t c = 0; c < image.count(); ++c)
      out.push_back(keep_u16 ? image.view<uint16_t>()[static_cast<size_t>(c)]
                             : image.view<uint8_t>()[static_cast<size_t>(c)]);
    return out;
  };
  using Values = std::vector<int>;
  EXPECT_EQ(pixel(8, PNG_COLOR_TYPE_RGB_ALPHA, "\xC8\x64\x32\x80"), Values({100, 50, 25}));
  EXPECT_EQ(pixel(8, PNG_COLOR_TYPE_GRAY_ALPHA, "\xC8\x80"), Values({100}));
  const std::string deep("\xC8\xC8\x64\x64\x32\x32\x80\x80", 8);
  EXPECT_EQ(pixel(16, PNG_COLOR_TYPE_RGB_ALPHA, deep), Values({100, 50, 25}));
  EXPECT_EQ(pixel(16, PNG_COLOR_TYPE_RGB_ALPHA, deep, true), Values({25801, 12900, 6450}));
}

void repair_checksums(std::string& png) {
  for (size_t at = 8; at + 12 <= png.size();) {
    uint32_t length = 0;
    for (size_t k = 0; k < 4; ++k) length = length << 8 | static_cast<uint8_t>(png[at + k]);
    if (length > png.size() - at - 12) break;
    const auto crc = static_cast<uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(png.data() + at + 4), length + 4));
    for (size_t k = 0; k < 4; ++k)
      png[at + 8 + length + k] = static_cast<char>(crc >> (24 - 8 * k));
    at += 12 + length;
  }
}

// Every byte changed, with the chunk's checksum made right again: an error or pixels, never worse.
TEST(DecodePng, SurvivesDamageWithGoodChecksums) {
  PngKind indexed{4, PNG_COLOR_TYPE_PALETTE, true};
  indexed.transparency = true;
  int errors = 0;
  for (const PngKind& kind : {PngKind{}, PngKind{16, PNG_COLOR_TYPE_RGB_ALPHA, true}, indexed}) {
    const std::string good = write_png(kind, 9, 8, 1);
    for (size_t i = 8; i < good.size(); ++i)
      for (const int change : {1, 128, 255}) {
        std::string bytes = good;
        bytes[i] = static_cast<char>(bytes[i] ^ change);
        repair_checksums(bytes);
        try {
          decode_image(bytes_of(bytes), {.keep_u16 = true, .max_pixels = 1 << 16});
        } catch (const Error&) {
          ++errors;
        }
      }
  }
  EXPECT_GT(errors, 600);
  const std::string good = write_png({}, 9, 8, 1);
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(decode_image(bytes_of(good.substr(0, size))), Error);
}

TEST(DecodePng, DamageIsAnError) {
  std::string flipped = make_png(40, 40, 3, 1);
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 0x40);
  EXPECT_THROW(decode_image(bytes_of(flipped)), Error);
}

std::string error_of(const std::string& png, const codec::ImageOptions& options = {}) {
  try {
    decode_image(bytes_of(png), options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DecodePng, SaysWhatIsWrong) {
  const auto expect = [](const std::string& png, const std::string& part) {
    const std::string error = error_of(png);
    EXPECT_NE(error.find("bad PNG: "), std::string::npos) << error;
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  const std::string good = make_png(5, 4, 3, 1);
  for (size_t size = 8; size < good.size(); ++size)
    expect(good.substr(0, size), (good.size() - size) % 12 == 0 ? "ends" : "the file ends");
  std::string changed = good;
  changed[changed.size() - 20] ^= 1;
  expect(changed, "a chunk's checksum does not match");
  expect(good.substr(0, 8) + good.substr(8 + 25), "its first chunk is not IHDR");
  const std::string header = good.substr(8 + 8, 13);
  expect(with_chunk(good, "IHDR", header), "its IHDR is damaged");
  const std::string longer = with_chunk(good, "IHDR", header + "x");
  expect(longer.substr(0, 8) + longer.substr(8 + 25), "its IHDR is damaged");
  expect(with_chunk(good, "ABCD", ""), "a critical chunk that is not known");
  EXPECT_EQ(error_of(with_chunk(good, "aBCD", "")), "");
  expect(assemble_png(1, 1, 8, PNG_COLOR_TYPE_RGB, "\7abc"), "a row has an unknown filter");
  expect(assemble_png(2, 2, 8, PNG_COLOR_TYPE_RGB, "few"), "damaged or too few");
  const auto indexed = [](const char* row) {
    return with_chunk(assemble_png(1, 1, 8, PNG_COLOR_TYPE_PALETTE, std::string(row, 2)), "PLTE",
                      "abcdef");
  };
  EXPECT_EQ(error_of(indexed("\0\1")), "");
  expect(indexed("\0\2"), "a pixel is not in its palette");
}

// By the bits of all its channels.
TEST(DecodePng, TheRatioIsThatOfTheWholePixel) {
  Rng rng(1);
  std::string noise;
  for (int i = 0; i < 300; ++i) noise += static_cast<char>(rng.below(256));
  for (const int bits : {8, 16}) {
    const std::string error = error_of(assemble_png(512, 512, bits, PNG_COLOR_TYPE_RGB, noise));
    EXPECT_NE(error.find("are too few for 512 x 512 pixels"), std::string::npos) << error;
  }
}

TEST(DecodePng, MayBeLarge) {
  const std::string wide =
      assemble_png(1'000'001, 1, 1, PNG_COLOR_TYPE_GRAY, std::string(125'002, '\0'));
  EXPECT_EQ(decode_image(bytes_of(wide)).shape(), (Shape{1, 1'000'001, 1}));
  // More than a thread keeps.
  const std::string rows(3 * 1700 * 1700 + 1700, '\0');
  const Tensor black =
      decode_image(bytes_of(assemble_png(1700, 1700, 8, PNG_COLOR_TYPE_RGB, rows)));
  EXPECT_EQ(black.view<uint8_t>().back(), 0);
}

TEST(DecodePng, OfSeveralOrientationsTheFirstCounts) {
  const std::string png = with_chunk(make_png(5, 3, 3, 1), "eXIf", exif(1, true));
  EXPECT_EQ(decode_image(bytes_of(with_chunk(png, "eXIf", exif(6, true)))).shape(),
            (Shape{5, 3, 3}));
}

TEST(DecodePng, LimitsChunks) {
  const std::string noted = with_chunk(make_png(2, 2, 3, 1), "teXt", std::string(1000, 'x'));
  EXPECT_EQ(error_of(noted, {.max_chunk_bytes = 1000}), "");
  EXPECT_NE(error_of(noted, {.max_chunk_bytes = 999}).find("a chunk of 1000 bytes"),
            std::string::npos);
  const std::string png = make_png(20, 20, 3, 1);
  EXPECT_NO_THROW(decode_image(bytes_of(png), {.max_chunk_bytes = 100000}));
  EXPECT_THROW(decode_image(bytes_of(png), {.max_chunk_bytes = 12}), Error);
}

}  // namespace
}  // namespace etr::test
