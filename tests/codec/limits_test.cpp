// Small files that are made to fill the memory or to take for ever.
#include <gtest/gtest.h>
#include <png.h>
#include <zlib.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "codec/image_codec.h"
#include "codec/planar_image.h"
#include "core/error.h"
#include "core/memory.h"
#include "support/data.h"
#include "support/images.h"

namespace etr::test {
namespace {

using codec::decode_image;

// The largest block that was asked for while it lived.
class LargestBlock {
 public:
  LargestBlock() {
    auto allocator = std::make_shared<Allocator>();
    allocator->allocate = [largest = largest_](size_t size, size_t alignment) {
      largest->store(std::max(largest->load(), size));
      return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    };
    allocator->release = [](void* memory, size_t) { std::free(memory); };
    set_allocator(std::move(allocator));
  }
  ~LargestBlock() { set_allocator(nullptr); }
  size_t bytes() const { return *largest_; }

 private:
  std::shared_ptr<std::atomic<size_t>> largest_ = std::make_shared<std::atomic<size_t>>(0);
};

void expect_refused(const std::string& bytes, Code code, const std::string& part,
                    const codec::ImageOptions& options = {}) {
  const LargestBlock largest;
  try {
    decode_image(bytes_of(bytes), options);
    ADD_FAILURE() << "decoded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
  EXPECT_LT(largest.bytes(), size_t{1} << 16);
}

// A PNG whose header states another size, with the checksum of that.
std::string sized(std::string png, uint32_t width, uint32_t height) {
  const auto put = [&](size_t at, uint32_t value) {
    for (size_t i = 0; i < 4; ++i) png[at + i] = static_cast<char>(value >> (24 - 8 * i));
  };
  put(16, width);
  put(20, height);
  put(29, static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(png.data()) + 12, 17)));
  return png;
}

TEST(Limits, AnImageWithoutPixelsIsNoneThatIsTooLarge) {
  for (const std::string& bytes : {make_png(6, 5, 3, 1), make_png(6, 5, 1, 1),
                                   write_png({16, PNG_COLOR_TYPE_RGB_ALPHA, true}, 6, 5, 1)})
    for (const auto& [width, height] : {std::pair{0u, 5u}, {6u, 0u}, {0u, 0u}})
      expect_refused(sized(bytes, width, height), Code::corrupt_data,
                     cat("the image is empty (", width, " x ", height, " pixels)"));
}

TEST(Limits, OtherFormatsAreNamed) {
  expect_refused("", Code::corrupt_data, "empty");
  for (const auto& [bytes, name] : {std::pair{"GIF89a....", "GIF"},
                                    {"RIFF\1\2\3\4WEBPVP8 ", "WebP"},
                                    {"BM......", "BMP"},
                                    {"\1\1\1\1ftypheic", "HEIC"},
                                    {"II*.....", "TIFF"}})
    expect_refused(bytes, Code::unsupported, cat("neither PNG nor JPEG but ", name));
  expect_refused("some text", Code::unsupported, "neither PNG nor JPEG (9 bytes)");
}

TEST(Limits, PixelsAreCountedBeforeTheyAreDecoded) {
  for (const std::string& bytes : {make_png(40, 30, 3, 1), smooth_jpeg({}, 40, 30),
                                   write_png({16, PNG_COLOR_TYPE_RGB_ALPHA, true}, 40, 30, 1)}) {
    EXPECT_NO_THROW(decode_image(bytes_of(bytes), {.max_pixels = 1200}));
    expect_refused(bytes, Code::unsupported, "40 x 30", {.max_pixels = 1199});
  }
}

TEST(Limits, PngsOfManyPixelsFromFewBytes) {
  for (const int bits : {1, 8, 16})
    for (const bool interlaced : {false, true}) {
      const std::string png =
          assemble_png(16384, 16384, bits, PNG_COLOR_TYPE_GRAY, "few", interlaced);
      EXPECT_LT(png.size(), 80u);
      expect_refused(png, Code::corrupt_data, "16384 x 16384");
    }
  // Everything that deflate can do is allowed.
  const std::string flat =
      assemble_png(2048, 2048, 8, PNG_COLOR_TYPE_GRAY, std::string(2049 * 2048, '\0'));
  EXPECT_LT(flat.size(), 5000u);
  EXPECT_EQ(decode_image(bytes_of(flat)).shape(), (Shape{2048, 2048, 1}));
}

// `jpeg`, whose header says that it is so large.
std::string resized(std::string jpeg, uint16_t side) {
  size_t at = jpeg.find("\xFF\xC0");
  if (at == std::string::npos) at = jpeg.find("\xFF\xC2");
  for (const size_t place : {at + 5, at + 7}) {
    jpeg[place] = static_cast<char>(side >> 8);
    jpeg[place + 1] = static_cast<char>(side);
  }
  return jpeg;
}

TEST(Limits, JpegsOfManyPixelsFromFewBytes) {
  for (const bool progressive : {false, true}) {
    JpegKind kind;
    kind.progressive = progressive;
    expect_refused(resized(smooth_jpeg(kind, 64, 64), 16000), Code::corrupt_data, "16000 x 16000");
  }
}

TEST(Limits, PlanarImagesOfManyPixelsFromFewBytes) {
  Tensor image(DType::u8, {4, 4, 3});
  std::ranges::fill(image.mutable_view<uint8_t>(), uint8_t{7});
  auto bytes = codec::encode_planar(image, 1);
  // The frame's header says how much it holds, in one byte; a longer field takes its place.
  ASSERT_EQ(std::to_integer<int>(bytes[4]) & 0xC0, 0);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  text[4] = static_cast<char>(text[4] | 0x80);  // four bytes of size
  text.replace(5, 1, std::string("\x00\x00\x00\x20", 4));
  expect_refused(text, Code::corrupt_data, "cannot make");
}

TEST(Limits, MemoryIsReservedBeforeItIsTaken) {
  JpegKind progressive;
  progressive.progressive = true;
  for (const std::string& bytes :
       {make_png(600, 400, 3, 1), write_png({16, PNG_COLOR_TYPE_RGB_ALPHA, true}, 600, 400, 1),
        smooth_jpeg({}, 600, 400), smooth_jpeg(progressive, 600, 400)}) {
    ByteGate small(300'000, 600'000), large(5'000'000, 10'000'000);
    expect_refused(bytes, Code::unsupported, "budget_bytes", {.memory = &small});
    EXPECT_NO_THROW(decode_image(bytes_of(bytes), {.memory = &large}));
  }
  // If a JPEG has several scans, all coefficients are kept: twice the pixels.
  ByteGate between(1'000'000, 1'000'000);
  EXPECT_NO_THROW(decode_image(bytes_of(smooth_jpeg({}, 600, 400)), {.memory = &between}));
  expect_refused(smooth_jpeg(progressive, 600, 400), Code::unsupported, "budget_bytes",
                 {.memory = &between});
}

// Counted are the part of the file that is read, the picture, and 16 rows if it is turned.
TEST(Limits, TheMemoryThatIsReservedIsWhatIsTaken) {
  ByteGate none(1, 1);
  const auto expect = [&](const std::string& image, int64_t bytes) {
    expect_refused(image, Code::unsupported, cat("takes ", bytes, " bytes"), {.memory = &none});
  };
  const std::string png = make_png(60, 40, 3, 1), gray = make_png(60, 40, 1, 1);
  expect(png, (3 * 60 + 1) * 40 + 3 * 60 * 40);
  expect(gray, (60 + 1) * 40 + 60 * 40);
  expect(with_exif(png, exif(6, true)), (3 * 60 + 1) * 40 + 3 * 60 * 40 + 3 * 60 * 16);
  expect(write_png({16, PNG_COLOR_TYPE_RGB, true}, 60, 40, 1), 3 * 60 * 40);
  expect(smooth_jpeg({}, 33, 17), 3 * 33 * 17);
  expect(with_exif(smooth_jpeg({1}, 33, 17), exif(6, true)), 33 * 17 + 33 * 16);
  JpegKind progressive{3, {{2, 2}, {1, 1}, {1, 1}}, true};  // 3 x 2 MCUs of 6 blocks of 64 numbers
  expect(smooth_jpeg(progressive, 33, 17), 3 * 33 * 17 + 3 * 2 * 6 * 64 * 2);
}

TEST(Limits, WhoNeedsMoreMemoryThanIsLeftWaits) {
  ByteGate gate(100, 1000);
  std::atomic<bool> left{false};
  std::thread other;
  {
    const ByteGate::Hold first(gate, 60), beside(gate, 40);
    other = std::thread([&] {
      const ByteGate::Hold alone(gate, 500);
      EXPECT_TRUE(left);
    });
    left = true;
  }
  other.join();
}

// A progressive JPEG whose last scan comes again and again.
std::string with_scans(int count) {
  JpegKind kind;
  kind.progressive = true;
  const std::string jpeg = smooth_jpeg(kind, 200, 200);
  const size_t last = jpeg.rfind("\xFF\xDA");
  std::string out = jpeg.substr(0, last);
  for (int i = 0; i < count; ++i) out += jpeg.substr(last, jpeg.size() - 2 - last);
  return out + "\xFF\xD9";
}

TEST(Limits, ScansAreCounted) {
  EXPECT_NO_THROW(decode_image(bytes_of(with_scans(1)), {.max_scans = 10}));
  for (const int64_t most : {3, 20, 100}) try {
      decode_image(bytes_of(with_scans(5000)), {.max_scans = most});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported);
      EXPECT_NE(std::string(error.what()).find(cat("more than ", most, " scans")),
                std::string::npos)
          << error.what();
    }
}

TEST(Limits, DecodingEndsSoonAfterItIsCancelled) {
  const std::string deep = write_png({16, PNG_COLOR_TYPE_RGB, true}, 60, 90, 1);
  for (const std::string& bytes :
       {with_scans(500), smooth_jpeg({}, 200, 900), deep, make_png(30, 30, 3, 1)})
    for (const int after : {0, 1}) {
      int asked = 0;
      const auto cancelled = [&] { return asked++ >= after; };
      try {
        decode_image(bytes_of(bytes), {.max_scans = 100'000, .cancelled = cancelled});
        FAIL();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::cancelled);
      }
      EXPECT_EQ(asked, after + 1);
    }
  // Often enough: for each row of MCUs of each scan.
  int asked = 0;
  decode_image(bytes_of(with_scans(50)), {.cancelled = [&] {
                 ++asked;
                 return false;
               }});
  EXPECT_GT(asked, 50 * 13);
}

}  // namespace
}  // namespace etr::test
