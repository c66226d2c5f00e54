// Images that lie otherwise than they are to be seen.
#include "codec/orientation.h"

#include <gtest/gtest.h>
#include <png.h>

#include <cstring>

#include "codec/image_codec.h"
#include "core/error.h"
#include "support/images.h"

namespace etr::test {
namespace {

using codec::decode_image;

// EXIF's own definition: where row 0 and column 0 of the stored image are seen.
Tensor turned(const Tensor& stored, int orientation) {
  const int64_t h = stored.shape()[0], w = stored.shape()[1];
  const size_t pixel = static_cast<size_t>(stored.shape()[2]) * dtype_size(stored.dtype());
  const bool swapped = orientation >= 5;
  Tensor out(stored.dtype(), {swapped ? w : h, swapped ? h : w, stored.shape()[2]});
  auto* to = static_cast<std::byte*>(out.mutable_data());
  for (int64_t r = 0; r < out.shape()[0]; ++r)
    for (int64_t c = 0; c < out.shape()[1]; ++c, to += pixel) {
      const std::pair<int64_t, int64_t> from[] = {
          {r, c}, {r, w - 1 - c}, {h - 1 - r, w - 1 - c}, {h - 1 - r, c},
          {c, r}, {h - 1 - c, r}, {h - 1 - c, w - 1 - r}, {c, w - 1 - r}};
      const auto [y, x] = from[orientation - 1];
      std::memcpy(to, stored.bytes().data() + static_cast<size_t>(y * w + x) * pixel, pixel);
    }
  return out;
}

void expect_turned(const std::string& image, const codec::ImageOptions& options,
                   const std::string& what) {
  const Tensor stored = decode_image(bytes_of(image), options);
  for (int orientation = 1; orientation <= 8; ++orientation)
    for (const bool little : {false, true}) {
      const std::string bytes = with_exif(image, exif(orientation, little, orientation % 3));
      EXPECT_TRUE(same(decode_image(bytes_of(bytes), options), turned(stored, orientation)))
          << what << ", orientation " << orientation;
      codec::ImageOptions as_stored = options;
      as_stored.upright = false;
      EXPECT_TRUE(same(decode_image(bytes_of(bytes), as_stored), stored)) << what;
    }
}

constexpr std::pair<int, int> kSizes[] = {{1, 1},   {1, 40},  {40, 1}, {37, 21},
                                          {16, 48}, {33, 16}, {20, 17}};

TEST(Orientation, AllOfThemInPngs) {
  for (const auto& [width, height] : kSizes)
    for (const PngKind& kind :
         {PngKind{8, PNG_COLOR_TYPE_GRAY}, PngKind{8, PNG_COLOR_TYPE_RGB},
          PngKind{8, PNG_COLOR_TYPE_PALETTE}, PngKind{8, PNG_COLOR_TYPE_RGB_ALPHA},
          PngKind{16, PNG_COLOR_TYPE_RGB}, PngKind{16, PNG_COLOR_TYPE_GRAY, true},
          PngKind{1, PNG_COLOR_TYPE_GRAY}})
      for (const auto channels : {codec::Channels::as_stored, codec::Channels::rgb}) {
        const std::string png =
            write_png(kind, static_cast<uint32_t>(width), static_cast<uint32_t>(height), 5);
        expect_turned(png, {.channels = channels, .keep_u16 = true},
                      cat(width, " x ", height, ", colour ", kind.colour, ", bits ", kind.bits));
      }
}

TEST(Orientation, AllOfThemInJpegs) {
  for (const auto& [width, height] : kSizes)
    for (const int channels : {1, 3, 4})
      for (const bool progressive : {false, true})
        for (const int64_t min_side : {0, 8}) {
          JpegKind kind;
          kind.channels = channels;
          kind.progressive = progressive;
          expect_turned(smooth_jpeg(kind, width, height), {.min_side = min_side},
                        cat(width, " x ", height, ", ", channels, " channels"));
        }
}

TEST(Orientation, IsFoundBehindThePixelsAndBehindOtherSegments) {
  const std::string png = write_png({}, 20, 30, 1);
  EXPECT_EQ(decode_image(bytes_of(with_chunk(png, "eXIf", exif(6, true), true))).shape(),
            (Shape{20, 30, 3}));
  const std::string jpeg = with_exif(smooth_jpeg({}, 20, 30), exif(8, false));
  const std::string behind = with_segment(with_segment(jpeg, 0xE1, "http://ns.adobe.com/xap/1.0/"),
                                          0xE0, std::string(300, 'x'));
  EXPECT_EQ(decode_image(bytes_of(behind)).shape(), (Shape{20, 30, 3}));
}

// The first block counts; what it does not say well is as if it were not there.
TEST(Orientation, ExifThatMakesNoSenseIsIgnored) {
  const auto of = [](const std::string& tiff) { return codec::exif_orientation(bytes_of(tiff)); };
  const std::string good = exif(6, true, 2);
  EXPECT_EQ(of(good), codec::Orientation::rotate_right);
  for (size_t size = 0; size + 4 < good.size(); ++size)  // the last field is a link
    EXPECT_EQ(of(good.substr(0, size)), codec::Orientation::upright) << size;
  EXPECT_EQ(of(good.substr(0, good.size() - 4)), codec::Orientation::rotate_right);
  for (const int value : {0, 9, 255, 65535})
    EXPECT_EQ(of(exif(value, false)), codec::Orientation::upright);
  for (size_t at = 0; at < good.size(); ++at)
    for (int value = 0; value < 256; ++value) {
      std::string changed = good;
      changed[at] = static_cast<char>(value);
      const int got = static_cast<int>(of(changed));
      EXPECT_TRUE(got >= 1 && got <= 8);
    }
  const std::string jpeg = smooth_jpeg({}, 3, 2);
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_NO_THROW(decode_image(bytes_of(with_exif(jpeg, good.substr(0, size)))));
}

// exif(6), whose entry is the first one, with a change in one field.
TEST(Orientation, EveryFieldOfTheEntryCounts) {
  const auto with = [](bool little, size_t at, const std::string& text) {
    std::string tiff = exif(6, little);
    return codec::exif_orientation(bytes_of(tiff.replace(at, text.size(), text)));
  };
  EXPECT_EQ(with(true, 0, "II"), codec::Orientation::rotate_right);
  const std::pair<size_t, std::string> changes[] = {{1, "M"},     // no order of bytes
                                                    {2, "\x2b"},  // another magic number
                                                    {8, std::string(1, '\0')},  // no entries
                                                    {12, "\4"},                 // a LONG
                                                    {14, "\2"}};                // two values
  for (const auto& [at, text] : changes)
    EXPECT_EQ(with(true, at, text), codec::Orientation::upright) << at;
  EXPECT_EQ(with(false, 0, "XX"), codec::Orientation::upright);
}

// Segments by hand, because most of these files are none that can be decoded.
TEST(Orientation, TheSegmentsOfAJpegAreFollowedToTheExif) {
  const auto segment = [](int marker, const std::string& body) {
    const size_t length = body.size() + 2;
    return std::string{'\xFF', static_cast<char>(marker), static_cast<char>(length >> 8),
                       static_cast<char>(length)} +
           body;
  };
  const std::string start = "\xFF\xD8", name("Exif\0\0", 6), other = name + exif(3, true);
  const std::string found = segment(0xE1, name + exif(6, true));
  const auto is_found = [&](const std::string& bytes) {
    const codec::Orientation orientation = codec::jpeg_orientation(bytes_of(start + bytes));
    EXPECT_TRUE(orientation == codec::Orientation::rotate_right ||
                orientation == codec::Orientation::upright);
    return orientation == codec::Orientation::rotate_right;
  };
  EXPECT_TRUE(is_found(found));
  EXPECT_TRUE(is_found("between" + found));
  EXPECT_TRUE(is_found("\xFF\xFF\xFF" + found)) << "fill bytes";
  for (const char marker : {'\x01', '\xD0', '\xD7', '\xD8'})  // without a body
    EXPECT_TRUE(is_found(std::string{'\xFF', marker} + found)) << int{marker};
  for (const int marker : {0x02, 0xCF, 0xE0, 0xFE}) {
    EXPECT_TRUE(is_found(segment(marker, "") + found)) << marker;
    EXPECT_TRUE(is_found(segment(marker, segment(0xE1, other) + std::string(300, '\0')) + found));
    EXPECT_TRUE(is_found(segment(marker, other) + found)) << marker;
  }
  EXPECT_TRUE(is_found(segment(0xE1, "Exif") + std::string(2, '\0') + exif(3, true) + found));
  EXPECT_FALSE(is_found(segment(0xE1, name) + found)) << "the first block counts";
  for (const int end : {0xDA, 0xD9}) EXPECT_FALSE(is_found(segment(end, "") + found)) << end;
  for (const char length : {'\0', '\1'})
    EXPECT_FALSE(is_found(std::string{'\xFF', '\xE0', '\0', length} + found)) << int{length};
  EXPECT_FALSE(is_found(found.substr(0, found.size() - 1))) << "a segment beyond the end";
}

TEST(OrientedRows, CollectBandsOfRowsOnlyWhereRowsDoNotRemainRows) {
  using codec::OrientedRows, codec::Orientation;
  for (const Orientation rows : {Orientation::upright, Orientation::flip})
    EXPECT_EQ(OrientedRows::band_bytes(rows, 100, 1000, 3), 0);
  EXPECT_EQ(OrientedRows::band_bytes(Orientation::mirror, 100, 1000, 3), 16 * 100 * 3);
  EXPECT_EQ(OrientedRows::band_bytes(Orientation::transpose, 100, 5, 1), 5 * 100);
  std::vector<uint8_t> out(4 * 40);
  const OrientedRows rows(Orientation::mirror, 4, 40, 1, out.data());
  EXPECT_EQ(rows.together(0), 16);
  EXPECT_EQ(rows.together(31), 1);
  EXPECT_EQ(rows.together(35), 5);
}

}  // namespace
}  // namespace etr::test
