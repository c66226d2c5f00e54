// What the image stages compute.
#include <gtest/gtest.h>
#include <png.h>
#include <turbojpeg.h>
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "codec/image_codec.h"
#include "codec/planar_image.h"
#include "core/error.h"
#include "core/rng.h"
#include "sources/pack.h"
#include "support/data.h"

namespace etr::test {
namespace {

using pipeline::Item;
using pipeline::Pipeline;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string make_jpeg(int width, int height, int gray) {
  std::vector<unsigned char> pixels(static_cast<size_t>(width * height * 3),
                                    static_cast<unsigned char>(gray));
  unsigned char* out = nullptr;
  unsigned long size = 0;
  tjhandle handle = tjInitCompress();
  tjCompress2(handle, pixels.data(), width, 0, height, TJPF_RGB, &out, &size, TJSAMP_444, 95, 0);
  std::string text(reinterpret_cast<char*>(out), size);
  tjFree(out);
  tjDestroy(handle);
  return text;
}

TEST(DecodeImage, PngIsExact) {
  const Tensor rgb =
      codec::decode_image(bytes_of(make_png(5, 3, 3, 2)), codec::Channels::as_stored);
  ASSERT_EQ(rgb.shape(), (Shape{3, 5, 3}));
  for (size_t i = 0; i < 45; ++i)
    EXPECT_EQ(rgb.view<uint8_t>()[i], static_cast<uint8_t>(i * 7 + 62));
  const Tensor gray =
      codec::decode_image(bytes_of(make_png(5, 3, 1, 0)), codec::Channels::as_stored);
  EXPECT_EQ(gray.shape(), (Shape{3, 5, 1}));
  EXPECT_EQ(codec::decode_image(bytes_of(make_png(5, 3, 1, 0)), codec::Channels::rgb).shape(),
            (Shape{3, 5, 3}));
  EXPECT_EQ(codec::decode_image(bytes_of(make_png(5, 3, 3, 0)), codec::Channels::gray).shape(),
            (Shape{3, 5, 1}));
}

TEST(DecodeImage, Jpeg) {
  const Tensor image =
      codec::decode_image(bytes_of(make_jpeg(13, 7, 100)), codec::Channels::as_stored);
  ASSERT_EQ(image.shape(), (Shape{7, 13, 3}));
  for (const uint8_t v : image.view<uint8_t>()) EXPECT_NEAR(v, 100, 2);
}

struct PngKind {
  int bits, colour, interlace, filters;
};

// Writes with libpng itself, in many small IDAT chunks; pixels are a mix of smooth and random.
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
  png_set_IHDR(png, info, width, height, kind.bits, kind.colour, kind.interlace,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_filter(png, 0, kind.filters);
  png_set_compression_buffer_size(png, 100);
  std::vector<png_color> palette(256);
  for (size_t i = 0; i < 256; ++i)
    palette[i] = {static_cast<png_byte>(i), static_cast<png_byte>(255 - i),
                  static_cast<png_byte>(i * 7)};
  if (kind.colour == PNG_COLOR_TYPE_PALETTE)
    png_set_PLTE(png, info, palette.data(), 1 << kind.bits);
  png_write_info(png, info);
  const size_t row = png_get_rowbytes(png, info);
  std::vector<std::vector<png_byte>> rows(height, std::vector<png_byte>(row));
  std::vector<png_bytep> pointers;
  Rng rng(seed);
  for (uint32_t y = 0; y < height; ++y) {
    for (size_t i = 0; i < row; ++i)
      rows[y][i] =
          static_cast<png_byte>(i + 3 * y + (rng.below(4) == 0 ? rng.below(256) : rng.below(5)));
    pointers.push_back(rows[y].data());
  }
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

// What libpng makes of it; gray by ITU-R BT.601.
Tensor reference_png(const std::string& bytes, bool rgb) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_TRUE(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()));
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  const bool colour = rgb || (image.format & PNG_FORMAT_FLAG_COLOR);
  image.format = colour ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  Tensor out(DType::u8, {image.height, image.width, colour ? 3 : 1});
  const png_color black{0, 0, 0};
  EXPECT_TRUE(png_image_finish_read(&image, &black, out.mutable_data(), 0, nullptr));
  if (rgb || !colour) return out;
  Tensor gray(DType::u8, {image.height, image.width, 1});
  for (size_t i = 0; i < gray.size_bytes(); ++i) {
    const uint8_t* p = out.view<uint8_t>().data() + 3 * i;
    gray.mutable_view<uint8_t>()[i] =
        static_cast<uint8_t>(std::floor(0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2] + 0.5 + 1e-9));
  }
  return gray;
}

TEST(DecodeImage, EveryKindOfPngIsWhatLibpngMakesOfIt) {
  uint32_t seed = 0;
  for (const int colour : {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_PALETTE,
                           PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB_ALPHA})
    for (const int bits : {1, 2, 4, 8, 16}) {
      if (bits < 8 && colour != PNG_COLOR_TYPE_GRAY && colour != PNG_COLOR_TYPE_PALETTE) continue;
      if (bits == 16 && colour == PNG_COLOR_TYPE_PALETTE) continue;
      for (const int interlace : {PNG_INTERLACE_NONE, PNG_INTERLACE_ADAM7})
        for (const int filters : {PNG_FILTER_NONE, PNG_FILTER_SUB, PNG_FILTER_UP, PNG_FILTER_AVG,
                                  PNG_FILTER_PAETH, PNG_ALL_FILTERS}) {
          const std::string bytes =
              write_png({bits, colour, interlace, filters}, 13 + seed % 5, 7 + seed % 3, seed);
          ++seed;
          for (const bool rgb : {true, false}) {
            const Tensor decoded = codec::decode_image(
                bytes_of(bytes), rgb ? codec::Channels::rgb : codec::Channels::gray);
            const Tensor expected = reference_png(bytes, rgb);
            ASSERT_EQ(decoded.shape(), expected.shape());
            ASSERT_EQ(std::memcmp(decoded.data(), expected.data(), expected.size_bytes()), 0)
                << "colour " << colour << ", " << bits << " bits, interlace " << interlace
                << ", filters " << filters << (rgb ? ", as RGB" : ", as gray");
          }
        }
    }
  EXPECT_GT(seed, 150u);
}

// `bytes` with another chunk behind its IHDR.
std::string with_chunk(const std::string& bytes, const std::string& type, const std::string& body) {
  const auto number = [](uint32_t n) {
    return std::string{static_cast<char>(n >> 24), static_cast<char>(n >> 16),
                       static_cast<char>(n >> 8), static_cast<char>(n)};
  };
  const std::string named = type + body;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(named.data()), static_cast<uInt>(named.size()));
  const size_t at = 8 + 25;
  return bytes.substr(0, at) + number(static_cast<uint32_t>(body.size())) + named +
         number(static_cast<uint32_t>(crc)) + bytes.substr(at);
}

TEST(DecodeImage, ColourSpacesLeaveValuesAsStored) {
  const std::string linear("\x00\x01\x86\xa0", 4);  // gamma 1.0
  for (const int colour : {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA})
    for (const int bits : {8, 16}) {
      const std::string plain = write_png({bits, colour, 0, PNG_ALL_FILTERS}, 17, 9, 3);
      const Tensor expected = codec::decode_image(bytes_of(plain), codec::Channels::as_stored);
      for (const std::string& other :
           {with_chunk(plain, "gAMA", linear), with_chunk(plain, "sRGB", std::string(1, '\0')),
            with_chunk(with_chunk(plain, "gAMA", linear), "sBIT", std::string("\5\5\5\5", 4))}) {
        const Tensor got = codec::decode_image(bytes_of(other), codec::Channels::as_stored);
        ASSERT_EQ(got.shape(), expected.shape());
        EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size_bytes()), 0)
            << colour << " " << bits;
      }
    }
}

// Every byte changed, with the chunk's checksum made right again: an error or pixels, never worse.
TEST(DecodeImage, SurvivesDamagedPngsWithGoodChecksums) {
  const std::string good = write_png({8, PNG_COLOR_TYPE_RGB, 0, PNG_ALL_FILTERS}, 9, 8, 1);
  int errors = 0;
  for (size_t i = 8; i < good.size(); ++i)
    for (const int change : {1, 128, 255}) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ change);
      for (size_t at = 8; at + 12 <= bytes.size();) {
        uint32_t length = 0;
        for (int k = 0; k < 4; ++k) length = length << 8 | static_cast<uint8_t>(bytes[at + k]);
        if (length > bytes.size() - at - 12) break;
        const auto* body = reinterpret_cast<const Bytef*>(bytes.data() + at + 4);
        const auto crc = static_cast<uint32_t>(crc32(0, body, length + 4));
        for (int k = 0; k < 4; ++k)
          bytes[at + 8 + length + k] = static_cast<char>(crc >> (24 - 8 * k));
        at += 12 + length;
      }
      try {
        codec::decode_image(bytes_of(bytes), codec::Channels::as_stored);
      } catch (const Error&) {
        ++errors;
      }
    }
  EXPECT_GT(errors, 300);
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(codec::decode_image(bytes_of(good.substr(0, size)), codec::Channels::as_stored),
                 Error);
}

TEST(DecodeImage, CmykJpegsBecomeRgbOrGray) {
  constexpr int kSide = 16;
  std::vector<unsigned char> inks;  // as Adobe's programs store them: 255 is no ink
  for (int i = 0; i < kSide * kSide; ++i) inks.insert(inks.end(), {200, 100, 50, 128});
  unsigned char* out = nullptr;
  unsigned long size = 0;
  tjhandle handle = tjInitCompress();
  ASSERT_EQ(
      tjCompress2(handle, inks.data(), kSide, 0, kSide, TJPF_CMYK, &out, &size, TJSAMP_444, 95, 0),
      0);
  const std::string bytes(reinterpret_cast<char*>(out), size);
  tjFree(out);
  tjDestroy(handle);
  const Tensor rgb = codec::decode_image(bytes_of(bytes), codec::Channels::as_stored);
  EXPECT_EQ(rgb.shape(), (Shape{kSide, kSide, 3}));
  const double expected[3] = {200 * 128 / 255.0, 100 * 128 / 255.0, 50 * 128 / 255.0};
  for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(rgb.view<uint8_t>()[c], expected[c], 3);
  const Tensor gray = codec::decode_image(bytes_of(bytes), codec::Channels::gray);
  EXPECT_EQ(gray.shape(), (Shape{kSide, kSide, 1}));
  EXPECT_NEAR(gray.view<uint8_t>()[5],
              0.299 * expected[0] + 0.587 * expected[1] + 0.114 * expected[2], 3);
}

TEST(DecodeImage, LimitsPixelsBeforeItDecodesThem) {
  for (const std::string& bytes : {make_png(40, 30, 3, 1), make_jpeg(40, 30, 7)}) {
    EXPECT_NO_THROW(codec::decode_image(bytes_of(bytes), codec::Channels::rgb, 1200));
    try {
      codec::decode_image(bytes_of(bytes), codec::Channels::rgb, 1199);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported);
      EXPECT_NE(std::string(error.what()).find("40 x 30"), std::string::npos);
    }
  }
}

TEST(DecodeImage, DamageIsAnError) {
  const std::string png = make_png(40, 40, 3, 1), jpeg = make_jpeg(40, 40, 9);
  for (const std::string& whole : {png, jpeg})
    for (const double share : {0.0, 0.02, 0.3, 0.7}) {
      const std::string cut =
          whole.substr(0, static_cast<size_t>(static_cast<double>(whole.size()) * share));
      EXPECT_THROW(codec::decode_image(bytes_of(cut), codec::Channels::rgb), Error) << share;
    }
  std::string flipped = png;
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 0x40);
  EXPECT_THROW(codec::decode_image(bytes_of(flipped), codec::Channels::rgb), Error);
}

// Runs one stage on one decoded image and returns the result.
class OneStage {
 public:
  explicit OneStage(int size = 8) : pattern_(make_shards(dir_, 1, 64, size, 10, ".tar")) {}

  std::vector<Tensor> images(const std::string& stages, int seed = 1) {
    Pipeline p({{"seed", seed},
                {"epochs", 1},
                {"stages",
                 parse_json(R"([{"stage": "webdataset", "pattern": ")" + pattern_ +
                                R"("}, {"stage": "label", "field": "txt"}, {"stage": "decode"})" +
                                stages + "]",
                            "test")}});
    std::vector<Tensor> out;
    Item item;
    while (p.next(item) == Pipeline::Next::item)
      out.push_back(pipeline::require_field(item, "image"));
    return out;
  }

 private:
  TempDir dir_;
  std::string pattern_;
};

TEST(Flip, MirrorsAboutTheRightShare) {
  OneStage data;
  const auto before = data.images(""), after = data.images(R"(, {"stage": "flip"})");
  int flipped = 0;
  for (size_t n = 0; n < before.size(); ++n) {
    const auto a = before[n].view<uint8_t>(), b = after[n].view<uint8_t>();
    bool same = true, mirrored = true;
    for (size_t y = 0; y < 8; ++y)
      for (size_t x = 0; x < 8; ++x)
        for (size_t c = 0; c < 3; ++c) {
          same &= b[(y * 8 + x) * 3 + c] == a[(y * 8 + x) * 3 + c];
          mirrored &= b[(y * 8 + x) * 3 + c] == a[(y * 8 + 7 - x) * 3 + c];
        }
    ASSERT_TRUE(same || mirrored);
    flipped += mirrored;
  }
  EXPECT_NEAR(flipped, 32, 16);
}

TEST(RandomCrop, IsAWindowOfThePaddedImage) {
  OneStage data;
  const auto before = data.images(""),
             after = data.images(R"(, {"stage": "random_crop", "pad": 3, "height": 6})");
  std::set<std::pair<int, int>> offsets;
  for (size_t n = 0; n < before.size(); ++n) {
    ASSERT_EQ(after[n].shape(), (Shape{6, 8, 3}));
    int matches = 0;
    for (int y0 = -3; y0 <= 5; ++y0)
      for (int x0 = -3; x0 <= 3; ++x0) {
        bool match = true;
        for (int i = 0; match && i < 6 * 8 * 3; ++i) {
          const int y = i / 24 + y0, x = i / 3 % 8 + x0, c = i % 3;
          const bool inside = y >= 0 && y < 8 && x >= 0 && x < 8;
          const uint8_t expected =
              inside ? before[n].view<uint8_t>()[static_cast<size_t>((y * 8 + x) * 3 + c)] : 0;
          match = after[n].view<uint8_t>()[static_cast<size_t>(i)] == expected;
        }
        if (match) offsets.insert({y0, x0}), ++matches;
      }
    EXPECT_EQ(matches, 1);
  }
  EXPECT_GT(offsets.size(), 25u) << "of 63 places";
}

TEST(Normalize, FormulaPerChannelAndWholeBatch) {
  OneStage data(5);
  const auto before = data.images("");
  const std::string normalize =
      R"(, {"stage": "normalize", "mean": [0.1, 0.5, 0.9], "std": [0.5, 1, 2]})";
  const auto after = data.images(normalize);
  const auto batched = data.images(R"(, {"stage": "batch", "size": 64})" + normalize);
  const double mean[] = {0.1, 0.5, 0.9}, deviation[] = {0.5, 1, 2};
  for (size_t n = 0; n < before.size(); ++n)
    for (size_t i = 0; i < 75; ++i) {
      const double expected =
          (before[n].view<uint8_t>()[i] / 255.0 - mean[i % 3]) / deviation[i % 3];
      ASSERT_NEAR(after[n].view<float>()[i], expected, 1e-5);
      ASSERT_EQ(batched[0].view<float>()[n * 75 + i], after[n].view<float>()[i]);
    }
}

TEST(Normalize, DeferredLeavesBytesAndSaysWhatToDo) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 8, 5);
  const std::string begin = R"({"stages": [{"stage": "webdataset", "pattern": ")" + pattern +
                            R"("}, {"stage": "decode"}, )";
  const std::string normalize =
      R"({"stage": "normalize", "mean": [0.1, 0.5, 0.9], "std": [0.5, 1, 2])";
  const auto first = [&](const std::string& stages) {
    pipeline::Pipeline p(parse_json(begin + stages + "]}", "test"));
    pipeline::Item item;
    p.next(item);
    return item;
  };
  const pipeline::Item now = first(R"({"stage": "batch", "size": 8}, )" + normalize + "}"),
                       later = first(R"({"stage": "batch", "size": 8}, )" + normalize +
                                     R"(, "deferred": true})");
  ASSERT_EQ(later.find("image")->dtype(), DType::u8);
  const auto bytes = later.find("image")->view<uint8_t>();
  const auto scale = later.find("image_scale")->view<float>(),
             shift = later.find("image_shift")->view<float>();
  ASSERT_EQ(scale.size(), 3u);
  for (size_t i = 0; i < bytes.size(); ++i)
    ASSERT_EQ(static_cast<float>(bytes[i]) * scale[i % 3] + shift[i % 3],
              now.find("image")->view<float>()[i]);
  EXPECT_THROW(first(normalize + R"(, "deferred": true})"), Error) << "in front of batch";
}

TEST(BrightnessContrast, StaysCloseAndVaries) {
  OneStage data;
  const auto before = data.images(""),
             same = data.images(
                 R"(, {"stage": "brightness_contrast", "brightness": 0, "contrast": 0})");
  const auto after =
      data.images(R"(, {"stage": "brightness_contrast", "brightness": 0.1, "contrast": 0})");
  std::set<int> shifts;
  for (size_t n = 0; n < before.size(); ++n) {
    EXPECT_EQ(std::memcmp(before[n].data(), same[n].data(), 192), 0);
    for (size_t i = 0; i < 192; ++i) {
      const int a = before[n].view<uint8_t>()[i], b = after[n].view<uint8_t>()[i];
      ASSERT_LE(std::abs(a - b), 26);
      if (a > 60 && a < 190) shifts.insert(b - a);
    }
  }
  EXPECT_GT(shifts.size(), 15u);
}

TEST(Label, OneHot) {
  TempDir dir;
  Pipeline p({{"epochs", 1},
              {"stages",
               {{{"stage", "webdataset"}, {"pattern", make_shards(dir, 1, 12)}},
                {{"stage", "label"}, {"classes", 10}, {"one_hot", true}}}}});
  Item item;
  for (int n = 0; p.next(item) == Pipeline::Next::item; ++n) {
    const Tensor& label = pipeline::require_field(item, "label");
    ASSERT_EQ(label.shape(), Shape{10});
    for (int c = 0; c < 10; ++c)
      EXPECT_EQ(label.view<float>()[static_cast<size_t>(c)], c == n % 10 ? 1 : 0);
  }
}

Options packing(const Json& options) { return {sources::pack_schema(), "pack", options}; }

TEST(PackAndFolder, GiveTheSameSamples) {
  TempDir dir;
  for (int i = 0; i < 50; ++i) {
    const std::string folder = dir.path("images/class-" + std::to_string(i % 5));
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/" + std::to_string(i) + ".png", std::ios::binary)
        << make_png(6, 6, 1, i);
  }
  const sources::PackResult packed = sources::pack_folder(dir.path("images"), dir.path("out"),
                                                          packing({{"per_shard", 20}}), nullptr);
  EXPECT_EQ(packed.samples, 50);
  EXPECT_EQ(packed.shards.size(), 3u);
  EXPECT_EQ(packed.classes.front(), "class-0");
  const auto contents = [](const Json& source) {
    Pipeline p({{"epochs", 1}, {"stages", {source, {{"stage", "label"}}, {{"stage", "decode"}}}}});
    std::multiset<std::pair<int, std::string>> out;
    Item item;
    while (p.next(item) == Pipeline::Next::item) {
      const auto image = pipeline::require_field(item, "image").view<char>();
      out.emplace(pipeline::require_field(item, "label").view<int32_t>()[0],
                  std::string(image.begin(), image.end()));
    }
    return out;
  };
  const auto from_folder = contents({{"stage", "folder"}, {"root", dir.path("images")}});
  const auto from_shards =
      contents({{"stage", "webdataset"}, {"pattern", dir.path("out-*.tar.zst")}});
  EXPECT_EQ(from_folder.size(), 50u);
  EXPECT_EQ(from_folder, from_shards);
  sources::pack_folder(dir.path("images"), dir.path("out"),
                       packing({{"per_shard", 20}, {"format", "fast"}}), nullptr);
  EXPECT_EQ(from_folder, contents({{"stage", "fast_shard"}, {"pattern", dir.path("out-*.ets")}}));
}

TEST(DecodeImage, JpegsMayBeDecodedSmaller) {
  using Size = std::pair<int64_t, int64_t>;
  const std::string jpeg = make_jpeg(160, 96, 100);
  const auto shape = [&](int64_t least_side) {
    const Tensor image = codec::decode_image(bytes_of(jpeg), codec::Channels::rgb,
                                             codec::kMaxPixels, codec::kMaxChunkBytes, least_side);
    return Size(image.shape()[0], image.shape()[1]);
  };
  EXPECT_EQ(shape(0), Size(96, 160));
  EXPECT_EQ(shape(49), Size(96, 160));
  EXPECT_EQ(shape(48), Size(48, 80));
  EXPECT_EQ(shape(24), Size(24, 40));
  EXPECT_EQ(shape(1), Size(12, 20));
  // What comes out is the picture made smaller: the same mean.
  const auto mean = [&](int64_t least_side) {
    const Tensor image = codec::decode_image(bytes_of(jpeg), codec::Channels::rgb,
                                             codec::kMaxPixels, codec::kMaxChunkBytes, least_side);
    double sum = 0;
    for (const uint8_t v : image.view<uint8_t>()) sum += v;
    return sum / static_cast<double>(image.count());
  };
  EXPECT_NEAR(mean(0), mean(24), 2);
}

TEST(Decode, LeavesWhatTheNextStageShrinksToItsDecoder) {
  TempDir dir;
  std::filesystem::create_directories(dir.path("a/b"));
  std::vector<unsigned char> waves;
  for (int i = 0; i < 96 * 160; ++i)
    waves.push_back(static_cast<unsigned char>(128 + 60 * std::sin(i % 160 * 0.5) +
                                               60 * std::cos(i / 160 * 0.3)));
  unsigned char* out = nullptr;
  unsigned long size = 0;
  tjhandle handle = tjInitCompress();
  ASSERT_EQ(
      tjCompress2(handle, waves.data(), 160, 0, 96, TJPF_GRAY, &out, &size, TJSAMP_GRAY, 95, 0), 0);
  std::ofstream(dir.path("a/b/x.jpg"), std::ios::binary)
      .write(reinterpret_cast<char*>(out), static_cast<std::streamsize>(size));
  tjFree(out);
  tjDestroy(handle);
  const auto image = [&](const std::string& decode, const std::string& next) {
    pipeline::Pipeline p(parse_json(R"({"stages": [{"stage": "folder", "root": ")" + dir.path("a") +
                                        R"("}, {"stage": "decode")" + decode + "}" + next + "]}",
                                    "test"));
    pipeline::Item item;
    p.next(item);
    return *item.find("image");
  };
  const auto same = [](const Tensor& a, const Tensor& b) {
    return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
  };
  const std::string small = R"(, {"stage": "resize", "height": 12, "width": 12})";
  EXPECT_TRUE(same(image("", small), image(R"(, "least_side": 24)", small)));
  const Tensor shrunk = image("", small), full = image(R"(, "least_side": 0)", small);
  EXPECT_FALSE(same(shrunk, full));
  for (size_t i = 0; i < full.size_bytes(); ++i)
    EXPECT_NEAR(shrunk.view<uint8_t>()[i], full.view<uint8_t>()[i], 8);
  // Nothing to gain, or nobody who shrinks: in full.
  for (const char* next : {"", R"(, {"stage": "flip"}, {"stage": "resize", "height": 12})",
                           R"(, {"stage": "resize", "shorter": 50})",
                           R"(, {"stage": "random_resized_crop", "height": 12, "width": 12})"})
    EXPECT_TRUE(same(image("", next), image(R"(, "least_side": 0)", next))) << next;
  const std::string crop =
      R"(, {"stage": "random_resized_crop", "height": 6, "width": 6, "area_min": 0.5})";
  EXPECT_TRUE(same(image("", crop), image(R"(, "least_side": 24)", crop)));
}

TEST(DecodeImage, LimitsPngChunks) {
  const std::string png = make_png(20, 20, 3, 1);
  EXPECT_NO_THROW(codec::decode_image(bytes_of(png), codec::Channels::rgb, 400, 100000));
  EXPECT_THROW(codec::decode_image(bytes_of(png), codec::Channels::rgb, 400, 12), Error);
}

TEST(PlanarImage, ComesBackBitByBit) {
  Rng rng(5);
  for (const int channels : {1, 3})
    for (const auto& [height, width] : {std::pair(1, 1), {1, 17}, {19, 1}, {33, 47}, {64, 64}})
      for (const int kind : {0, 1, 2, 3}) {  // noise, flat, smooth, smooth with equal planes
        Tensor image(DType::u8, {height, width, channels});
        auto pixels = image.mutable_view<uint8_t>();
        for (size_t i = 0; i < pixels.size(); ++i) {
          const size_t pixel = i / static_cast<size_t>(channels);
          const size_t x = pixel % static_cast<size_t>(width),
                       y = pixel / static_cast<size_t>(width);
          const size_t c = kind == 3 ? 0 : i % static_cast<size_t>(channels);
          pixels[i] = static_cast<uint8_t>(kind == 0   ? rng.below(256)
                                           : kind == 1 ? 77
                                                       : 3 * x + 5 * y + 40 * c + rng.below(3));
        }
        const auto packed = codec::encode_planar(image, 3);
        const Tensor back = codec::decode_image(packed, codec::Channels::as_stored);
        ASSERT_EQ(back.shape(), image.shape());
        ASSERT_EQ(std::memcmp(back.data(), image.data(), image.size_bytes()), 0)
            << channels << " " << height << " x " << width << " " << kind;
        const Tensor rgb = codec::decode_image(packed, codec::Channels::rgb);
        ASSERT_EQ(rgb.shape()[2], 3);
        if (channels == 1) {
          for (size_t i = 0; i < pixels.size(); ++i)
            ASSERT_EQ(rgb.view<uint8_t>()[3 * i + i % 3], pixels[i]);
        }
        EXPECT_EQ(codec::decode_image(packed, codec::Channels::gray).shape()[2], 1);
      }
}

TEST(PlanarImage, DamageIsAnErrorAndLimitsHold) {
  Tensor image(DType::u8, {40, 30, 3});
  std::memset(image.mutable_data(), 9, image.size_bytes());
  const auto good = codec::encode_planar(image, 1);
  EXPECT_NO_THROW(codec::decode_image(good, codec::Channels::rgb, 1200));
  EXPECT_THROW(codec::decode_image(good, codec::Channels::rgb, 1199), Error);
  for (size_t size = 4; size < good.size(); ++size)
    EXPECT_THROW(codec::decode_image(std::span(good).first(size), codec::Channels::rgb), Error);
  for (size_t i = 4; i < good.size(); ++i) {
    auto damaged = good;
    damaged[i] ^= std::byte{0x40};
    try {
      codec::decode_image(damaged, codec::Channels::rgb);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace etr::test
