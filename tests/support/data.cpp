#include "support/data.h"

#include <png.h>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/rng.h"
#include "io/tar_writer.h"

namespace etr::test {

namespace {

std::string encode_png(int width, int height, int channels, const std::vector<uint8_t>& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr);
  std::string out(size, '\0');
  png_image_write_to_memory(&image, out.data(), &size, 0, pixels.data(), 0, nullptr);
  out.resize(size);
  return out;
}

}  // namespace

std::string make_png(int width, int height, int channels, int tag) {
  std::vector<uint8_t> pixels(static_cast<size_t>(width * height * channels));
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<uint8_t>(i * 7 + static_cast<size_t>(tag) * 31);
  return encode_png(width, height, channels, pixels);
}

std::string make_band_shard(const TempDir& dir, const std::string& name, int samples, int seed) {
  constexpr int kSize = 12;
  const std::string path = dir.path(name + ".tar");
  io::TarWriter writer(path, 0);
  Rng rng(static_cast<uint64_t>(seed));
  for (int i = 0; i < samples; ++i) {
    const int label = static_cast<int>(rng.below(4));
    std::vector<uint8_t> pixels(kSize * kSize);
    for (int at = 0; at < kSize * kSize; ++at) {
      const bool band = at / kSize / 3 == label;
      pixels[static_cast<size_t>(at)] = static_cast<uint8_t>(rng.below(160) + (band ? 90 : 0));
    }
    const std::string png = encode_png(kSize, kSize, 1, pixels), cls = std::to_string(label);
    writer.add(cat("n", i, ".png"), std::as_bytes(std::span(png)));
    writer.add(cat("n", i, ".cls"), std::as_bytes(std::span(cls)));
  }
  writer.finish();
  return path;
}

std::string make_shards(const TempDir& dir, int shards, int per_shard, int image_size, int classes,
                        const std::string& extension) {
  int number = 0;
  for (int s = 0; s < shards; ++s) {
    io::TarWriter writer(dir.path(cat("shard-", s, extension)), 3);
    for (int i = 0; i < per_shard; ++i, ++number) {
      const auto add = [&](const char* ending, const std::string& content) {
        writer.add(cat("n", number, ending), std::as_bytes(std::span(content)));
      };
      if (image_size > 0) add(".png", make_png(image_size, image_size, 3, number));
      add(".cls", std::to_string(number % classes));
      add(".txt", std::to_string(number));
    }
    writer.finish();
  }
  return dir.path(cat("shard-{0..", shards - 1, "}", extension));
}

std::vector<int32_t> labels_of_epoch(pipeline::Pipeline& pipeline) {
  std::vector<int32_t> out;
  pipeline::Item item;
  while (pipeline.next(item) == pipeline::Pipeline::Next::item) {
    const auto labels = pipeline::require_field(item, "label").view<int32_t>();
    out.insert(out.end(), labels.begin(), labels.end());
  }
  return out;
}

uint64_t digest_of_epoch(pipeline::Pipeline& pipeline, int64_t limit) {
  uint64_t digest = 1;
  pipeline::Item item;
  while (limit-- != 0 && pipeline.next(item) == pipeline::Pipeline::Next::item)
    for (const pipeline::Field& field : item.fields)
      digest = mix64(digest ^ crc32c(field.tensor.bytes()) ^
                     crc32c(std::as_bytes(std::span(field.name))));
  return digest;
}

}  // namespace etr::test
