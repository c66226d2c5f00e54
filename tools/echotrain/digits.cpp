#include "digits.h"

#include <png.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>

#include "glyphs.h"

namespace digits {
namespace {

namespace fs = std::filesystem;

void write_png(const fs::path& path, const std::vector<uint8_t>& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = kImageSize;
  image.format = PNG_FORMAT_GRAY;
  std::string png(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = png.size();
  if (!png_image_write_to_memory(&image, png.data(), &size, 0, pixels.data(), 0, nullptr))
    throw std::runtime_error("cannot encode " + path.string() + ": " + image.message);
  std::ofstream out(path, std::ios::binary);
  out.write(png.data(), static_cast<std::streamsize>(size));
  if (!out.flush())
    throw std::runtime_error("cannot write " + path.string() + ": " + std::strerror(errno));
}

}  // namespace

void draw(const std::string& folder, int count, uint32_t seed,
          const std::function<void(int)>& progress) {
  std::mt19937 random(seed);
  for (int digit = 0; digit < 10; ++digit)
    fs::create_directories(fs::path(folder) / std::to_string(digit));
  for (int i = 0; i < count; ++i) {
    const int digit = i % 10;
    write_png(fs::path(folder) / std::to_string(digit) / (std::to_string(i) + ".png"),
              draw_digit(digit, random));
    if (i % 200 == 199) progress(i + 1);
  }
}

}  // namespace digits
