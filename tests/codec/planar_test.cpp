// Planar images, of fast shards.
#include <gtest/gtest.h>

#include <cstring>

#include "codec/image_codec.h"
#include "codec/planar_image.h"
#include "core/error.h"
#include "core/rng.h"

namespace etr::test {
namespace {

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
        const Tensor back = codec::decode_image(packed);
        ASSERT_EQ(back.shape(), image.shape());
        ASSERT_EQ(std::memcmp(back.data(), image.data(), image.size_bytes()), 0)
            << channels << " " << height << " x " << width << " " << kind;
        const Tensor rgb = codec::decode_image(packed, {.channels = codec::Channels::rgb});
        ASSERT_EQ(rgb.shape()[2], 3);
        if (channels == 1) {
          for (size_t i = 0; i < pixels.size(); ++i)
            ASSERT_EQ(rgb.view<uint8_t>()[3 * i + i % 3], pixels[i]);
        }
        EXPECT_EQ(codec::decode_image(packed, {.channels = codec::Channels::gray}).shape()[2], 1);
      }
}

TEST(PlanarImage, DamageIsAnErrorAndLimitsHold) {
  Tensor image(DType::u8, {40, 30, 3});
  std::memset(image.mutable_data(), 9, image.size_bytes());
  const auto good = codec::encode_planar(image, 1);
  EXPECT_NO_THROW(codec::decode_image(good, {.max_pixels = 1200}));
  EXPECT_THROW(codec::decode_image(good, {.max_pixels = 1199}), Error);
  for (size_t size = 4; size < good.size(); ++size)
    EXPECT_THROW(
        codec::decode_image(std::span(good).first(size), {.channels = codec::Channels::rgb}),
        Error);
  for (size_t i = 4; i < good.size(); ++i) {
    auto damaged = good;
    damaged[i] ^= std::byte{0x40};
    try {
      codec::decode_image(damaged, {.channels = codec::Channels::rgb});
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace etr::test
