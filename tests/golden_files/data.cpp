// The data of a set.
#include <png.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "golden_files/set.h"

namespace golden {

bool is_of_today(const std::string& version) {
  const std::string today = et::version();
  return version.substr(0, version.rfind('.')) == today.substr(0, today.rfind('.'));
}

et::Runtime open_device() {
  const char* device = std::getenv("ECHOTRAIN_TEST_DEVICE");
  return et::Runtime(device ? device : "");
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  expect(in.good(), "cannot read '" + path + "'");
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  expect(out.flush().good(), "cannot write '" + path + "'");
}

void write_data() {
  std::filesystem::create_directories("data");
  std::string rows;
  for (int i = 0; i < 40; ++i)
    rows += Json{{"x", {i % 3, i % 5 * 0.25, i % 7 * 0.125 - 0.5}}, {"label", i % 3}}.dump() + "\n";
  write_text("data/rows.jsonl", rows);
  for (int i = 0; i < 12; ++i) {
    const std::string folder = "data/images/" + std::to_string(i % 3);
    std::filesystem::create_directories(folder);
    std::array<uint8_t, 64> pixels{};
    for (size_t p = 0; p < pixels.size(); ++p)
      pixels[p] = static_cast<uint8_t>(20 * static_cast<size_t>(i) + p % 8 * 3);
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = image.height = 8;
    image.format = PNG_FORMAT_GRAY;
    const std::string path = folder + "/" + std::to_string(i) + ".png";
    expect(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr) != 0,
           "cannot write " + path);
  }
  et::pack("data/images", "data/tar", {{"per_shard", 6}});
  et::pack("data/images", "data/fast", {{"format", "fast"}, {"overwrite", true}});
}

}  // namespace golden
