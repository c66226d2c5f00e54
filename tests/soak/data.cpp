#include "soak/data.h"

#include <png.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "echotrain/echotrain.hpp"

namespace soak {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string big_endian(uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
  return out;
}

void write_images(const std::string& folder) {
  for (int i = 0; i < kSamples; ++i) {
    const std::string of_class = folder + "/" + std::to_string(i % 2);
    fs::create_directories(of_class);
    std::array<uint8_t, 64> pixels{};
    for (size_t p = 0; p < pixels.size(); ++p)
      pixels[p] =
          static_cast<uint8_t>((i % 2 ? 200 : 40) + (p * 13 + static_cast<size_t>(i) * 7) % 40);
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = image.height = 8;
    image.format = PNG_FORMAT_GRAY;
    const std::string path = of_class + "/" + std::to_string(i) + ".png";
    if (!png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr))
      throw std::runtime_error("cannot write " + path);
  }
}

std::string npy(const std::string& type, const std::string& shape, const std::string& data) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize((10 + header.size() + 64) / 64 * 64 - 10, ' ');
  header.back() = '\n';
  return "\x93NUMPY\x01" + std::string(1, '\0') + raw(static_cast<uint16_t>(header.size())) +
         header + data;
}

// Of Castagnoli's polynomial, masked as TensorFlow does.
uint32_t masked_crc(const std::string& bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78U : 0U);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

// A field of a protocol buffer of less than 128 bytes.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

std::string tf_record(int number) {
  const auto feature = [](const std::string& name, int kind, const std::string& list) {
    return field(1, field(1, name) + field(2, field(kind, list)));
  };
  const std::string example =
      field(1, feature("x", 2, field(1, raw(0.5F) + raw(static_cast<float>(number)))) +
                   feature("label", 3, field(1, std::string(1, static_cast<char>(number % 2)))));
  const std::string length = raw(static_cast<uint64_t>(example.size()));
  return length + raw(masked_crc(length)) + example + raw(masked_crc(example));
}

void write_rows(const std::string& folder) {
  for (int part = 0; part < 2; ++part) {
    std::string csv = "a,b,label\n", jsonl, records, text;
    for (int i = part; i < kSamples; i += 2) {
      const std::string a = std::to_string(i % 7) + ".5", label = std::to_string(i / 2 % 2);
      csv += a + ",1.25," + label + "\n";
      jsonl += R"({"x": [)" + a + ", 1.25], \"label\": " + label + "}\n";
      records += tf_record(i);
      text += "line " + std::to_string(i) + "\n";
    }
    const std::string name = folder + "/rows-" + std::to_string(part);
    write_file(name + ".csv", csv);
    write_file(name + ".jsonl", jsonl);
    write_file(name + ".tfrecord", records);
    write_file(folder + "/text-" + std::to_string(part) + ".txt", text);
  }
}

void write_arrays(const std::string& folder) {
  std::string images =
      std::string("\0\0\x08\x03", 4) + big_endian(kSamples) + big_endian(8) + big_endian(8);
  std::string labels = std::string("\0\0\x08\x01", 4) + big_endian(kSamples), cifar, x, y;
  for (int i = 0; i < kSamples; ++i) {
    const auto level = static_cast<char>(i % 2 ? 120 : 20);
    images += std::string(64, level);
    labels += static_cast<char>(i % 2);
    cifar += static_cast<char>(i % 2) + std::string(3072, level);
    x += raw(static_cast<float>(i)) + raw(1.0F);
    y += raw(i % 2);
  }
  write_file(folder + "/images.idx", images);
  write_file(folder + "/labels.idx", labels);
  write_file(folder + "/cifar.bin", cifar);
  const std::string count = std::to_string(kSamples);
  write_file(folder + "/x.npy", npy("<f4", "(" + count + ", 2)", x));
  write_file(folder + "/y.npy", npy("<i4", "(" + count + ",)", y));
}

}  // namespace

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes;
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_data(const std::string& folder) {
  write_images(folder + "/images");
  write_rows(folder);
  write_arrays(folder);
  namespace et = echotrain;
  et::pack(folder + "/images", folder + "/shard");
  et::pack(folder + "/images", folder + "/fast", {{"format", "fast"}, {"overwrite", true}});
}

}  // namespace soak
