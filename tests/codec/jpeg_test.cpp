// JPEGs of all kinds, and damaged ones.
#include <gtest/gtest.h>

#include <cstring>

#include "codec/image_codec.h"
#include "core/error.h"
#include "support/error_text.h"
#include "support/images.h"

namespace etr::test {
namespace {

using codec::Channels;
using codec::decode_image;

// Where a segment of this marker begins.
size_t find_marker(const std::string& jpeg, uint8_t marker) {
  return jpeg.find(std::string{'\xFF', static_cast<char>(marker)});
}

std::string without_segment(std::string jpeg, uint8_t marker) {
  for (size_t at; (at = find_marker(jpeg, marker)) != std::string::npos;)
    jpeg.erase(at, 2 + (static_cast<size_t>(static_cast<uint8_t>(jpeg[at + 2])) << 8 |
                        static_cast<uint8_t>(jpeg[at + 3])));
  return jpeg;
}

TEST(DecodeJpeg, EverySampling) {
  using Sampling = std::vector<std::pair<int, int>>;
  constexpr int kWidth = 75, kHeight = 61;
  const auto pixels = smooth_pixels(kWidth, kHeight, 3);
  for (const auto& [h, v] : Sampling{
           {1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}, {4, 2}, {2, 4}, {3, 1}, {1, 3}, {3, 2}})
    for (const Sampling& chroma : {Sampling{{1, 1}, {1, 1}}, Sampling{{h, 1}, {h, 1}},
                                   Sampling{{1, v}, {1, v}}, Sampling{{1, 1}, {h, v}}})
      for (const bool progressive : {false, true}) {
        if (h * v + chroma[0].first * chroma[0].second + chroma[1].first * chroma[1].second > 10)
          continue;  // more blocks in an MCU than there may be
        JpegKind kind;
        kind.sampling = {{h, v}, chroma[0], chroma[1]};
        kind.progressive = progressive;
        const std::string jpeg = write_jpeg(kind, kWidth, kHeight, pixels);
        const Tensor image = decode_image(bytes_of(jpeg));
        ASSERT_EQ(image.shape(), (Shape{kHeight, kWidth, 3}));
        for (size_t i = 0; i < pixels.size(); ++i)
          ASSERT_NEAR(image.view<uint8_t>()[i], pixels[i], 16) << h << " x " << v << " at " << i;
        const Tensor gray = decode_image(bytes_of(jpeg), {.channels = Channels::gray});
        EXPECT_EQ(gray.shape(), (Shape{kHeight, kWidth, 1}));
        for (size_t i = 0; i < pixels.size(); i += 3)
          ASSERT_NEAR(gray.view<uint8_t>()[i / 3],
                      0.299 * pixels[i] + 0.587 * pixels[i + 1] + 0.114 * pixels[i + 2], 16);
      }
}

TEST(DecodeJpeg, GrayIsAsStoredOrRgb) {
  const std::string jpeg = smooth_jpeg({1}, 20, 10);
  const Tensor gray = decode_image(bytes_of(jpeg));
  ASSERT_EQ(gray.shape(), (Shape{10, 20, 1}));
  const Tensor rgb = decode_image(bytes_of(jpeg), {.channels = Channels::rgb});
  ASSERT_EQ(rgb.shape(), (Shape{10, 20, 3}));
  for (size_t i = 0; i < 600; ++i) EXPECT_EQ(rgb.view<uint8_t>()[i], gray.view<uint8_t>()[i / 3]);
}

// One colour all over loses nothing at the best quality, so that rounding shows.
TEST(DecodeJpeg, InksAreMultipliedAndRounded) {
  const auto rgb_of = [](std::initializer_list<uint8_t> ink) {
    std::vector<uint8_t> inks;
    for (int i = 0; i < 64; ++i) inks.insert(inks.end(), ink);
    const std::string jpeg = write_jpeg({4, {}, false, true, 100}, 8, 8, inks);
    const Tensor rgb = decode_image(bytes_of(jpeg));
    return std::vector<int>(rgb.view<uint8_t>().begin(), rgb.view<uint8_t>().begin() + 3);
  };
  EXPECT_EQ(rgb_of({200, 100, 50, 255}), (std::vector{200, 100, 50}));
  EXPECT_EQ(rgb_of({200, 100, 50, 128}), (std::vector{100, 50, 25}));
  EXPECT_EQ(rgb_of({127, 128, 255, 1}), (std::vector{0, 1, 1}));
}

TEST(DecodeJpeg, InksBecomeRgbOrGray) {
  constexpr int kSide = 16;
  std::vector<uint8_t> inks;  // as Adobe's programs store them: 255 is no ink
  for (int i = 0; i < kSide * kSide; ++i) inks.insert(inks.end(), {200, 100, 50, 128});
  const double expected[3] = {200 * 128 / 255.0, 100 * 128 / 255.0, 50 * 128 / 255.0};
  for (const bool as_given : {true, false})  // CMYK, YCCK
    for (const bool progressive : {false, true}) {
      JpegKind kind{4, {}, progressive, as_given};
      const std::string jpeg = write_jpeg(kind, kSide, kSide, inks);
      const Tensor rgb = decode_image(bytes_of(jpeg));
      EXPECT_EQ(rgb.shape(), (Shape{kSide, kSide, 3}));
      for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(rgb.view<uint8_t>()[c], expected[c], 3);
      const Tensor gray = decode_image(bytes_of(jpeg), {.channels = Channels::gray});
      EXPECT_EQ(gray.shape(), (Shape{kSide, kSide, 1}));
      EXPECT_NEAR(gray.view<uint8_t>()[5],
                  0.299 * expected[0] + 0.587 * expected[1] + 0.114 * expected[2], 3);
    }
}

TEST(DecodeJpeg, StoredAsRgb) {
  const auto pixels = smooth_pixels(20, 10, 3);
  const Tensor image = decode_image(bytes_of(write_jpeg({3, {}, false, true}, 20, 10, pixels)));
  for (size_t i = 0; i < pixels.size(); ++i) EXPECT_NEAR(image.view<uint8_t>()[i], pixels[i], 10);
}

TEST(DecodeJpeg, RefusesArithmeticCoding) {
  std::string jpeg = smooth_jpeg({}, 160, 96);
  jpeg.at(jpeg.find("\xff\xc0") + 1) = '\xc9';  // SOF9
  const std::string error = error_text([&] { decode_image(bytes_of(jpeg), {}); });
  EXPECT_EQ(error, "a JPEG with arithmetic coding; save it with Huffman coding");
}

TEST(DecodeJpeg, MayComeOutSmaller) {
  using Size = std::pair<int64_t, int64_t>;
  const std::string jpeg = smooth_jpeg({}, 160, 96);
  const auto image = [&](int64_t min_side) {
    return decode_image(bytes_of(jpeg), {.channels = Channels::rgb, .min_side = min_side});
  };
  const auto size = [&](int64_t min_side) {
    const Tensor made = image(min_side);
    return Size(made.shape()[0], made.shape()[1]);
  };
  EXPECT_EQ(size(0), Size(96, 160));
  EXPECT_EQ(size(49), Size(96, 160));
  EXPECT_EQ(size(48), Size(48, 80));
  EXPECT_EQ(size(24), Size(24, 40));
  EXPECT_EQ(size(1), Size(12, 20));
  const Tensor odd = decode_image(bytes_of(smooth_jpeg({}, 160, 97)), {.min_side = 49});
  EXPECT_EQ(odd.shape(), (Shape{49, 80, 3}));
  // The result is the picture at a smaller size, with the same mean.
  const auto mean = [](const Tensor& made) {
    double sum = 0;
    for (const uint8_t v : made.view<uint8_t>()) sum += v;
    return sum / static_cast<double>(made.count());
  };
  EXPECT_NEAR(mean(image(0)), mean(image(24)), 2);
}

TEST(DecodeJpeg, WhatLibjpegOnlyWarnsOfIsDecoded) {
  for (const bool progressive : {false, true}) {
    JpegKind kind;
    kind.progressive = progressive;
    const std::string good = smooth_jpeg(kind, 80, 64);
    std::string warning;
    const Tensor whole = decode_image(bytes_of(good), {}, &warning);
    EXPECT_EQ(warning, "");
    // Bytes between two segments: nothing is lost.
    const std::string padded = good.substr(0, 20) + std::string(7, '\0') + good.substr(20);
    EXPECT_TRUE(same(decode_image(bytes_of(padded), {}, &warning), whole));
    EXPECT_NE(warning.find("extraneous"), std::string::npos) << warning;
    std::string twice = padded;  // the first one is told
    twice.replace(twice.size() - 40, 8, "\xFF\0\xFF\0\xFF\0\xFF\0", 8);
    decode_image(bytes_of(twice), {}, &warning);
    EXPECT_NE(warning.find("extraneous"), std::string::npos) << warning;
    // Codes that there are none of in the second half of the (last) scan: the rows before them are
    // whole.
    std::string damaged = good;
    damaged.replace(damaged.size() - 40, 8, "\xFF\0\xFF\0\xFF\0\xFF\0", 8);
    warning = "";
    const Tensor read = decode_image(bytes_of(damaged), {}, &warning);
    EXPECT_EQ(read.shape(), whole.shape());
    if (!progressive) {
      EXPECT_NE(warning, "");
      EXPECT_EQ(std::memcmp(read.data(), whole.data(), 16 * 80 * 3), 0);
    }
  }
  // The data end before the picture does, and the file says so: gray below.
  const std::string good = smooth_jpeg({}, 80, 64);
  std::string warning;
  const Tensor whole = decode_image(bytes_of(good));
  const Tensor half =
      decode_image(bytes_of(good.substr(0, good.size() * 3 / 4) + "\xFF\xD9"), {}, &warning);
  EXPECT_NE(warning.find("premature end"), std::string::npos) << warning;
  EXPECT_EQ(std::memcmp(half.data(), whole.data(), 16 * 80 * 3), 0);
}

TEST(DecodeJpeg, WhatIsCutOffIsAnError) {
  const std::string good = smooth_jpeg({}, 80, 64);
  // Without the mark at its end nothing is missing.
  std::string warning;
  EXPECT_TRUE(same(decode_image(bytes_of(good.substr(0, good.size() - 2)), {}, &warning),
                   decode_image(bytes_of(good))));
  EXPECT_EQ(warning, "");
  JpegKind kind;
  kind.progressive = true;
  for (const std::string& whole : {good, smooth_jpeg(kind, 80, 64)})
    for (size_t size = 0; size + 3 < whole.size(); ++size) {
      const std::string cut = whole.substr(0, size);
      EXPECT_THROW(decode_image(bytes_of(cut)), Error) << size << " of " << whole.size();
    }
}

// A decoder that keeps the tables of the image before would take them here.
TEST(DecodeJpeg, MissingTablesAreAnErrorWhateverWasDecodedBefore) {
  const std::string good = smooth_jpeg({}, 40, 30);
  const std::string lacking = without_segment(good, 0xDB);
  ASSERT_LT(lacking.size(), good.size());
  for (int turn = 0; turn < 2; ++turn) {
    try {
      decode_image(bytes_of(lacking));
      ADD_FAILURE() << "decoded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::corrupt_data);
      EXPECT_STREQ(error.what(), "bad JPEG: Quantization table 0x00 was not defined");
    }
    EXPECT_NO_THROW(decode_image(bytes_of(good)));
  }
}

TEST(DecodeJpeg, SurvivesDamage) {
  for (const bool progressive : {false, true}) {
    JpegKind kind;
    kind.progressive = progressive;
    const std::string good = smooth_jpeg(kind, 24, 20);
    for (size_t at = 2; at < good.size(); ++at)
      for (const int change : {1, 128, 255}) {
        std::string bytes = good;
        bytes[at] = static_cast<char>(bytes[at] ^ change);
        try {
          decode_image(bytes_of(bytes), {.max_pixels = 1 << 16});
        } catch (const Error&) {
        }
      }
  }
}

}  // namespace
}  // namespace etr::test
