// Files for every kind of source, and helpers of the source tests.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/crc32c.h"
#include "core/error.h"
#include "support/data.h"

namespace etr::test {

using pipeline::Item;
using pipeline::Pipeline;

// Writes a file unless it exists: a pipeline may have mapped it.
inline void write(const std::string& path, const std::string& bytes) {
  if (std::filesystem::exists(path)) return;
  std::ofstream(path, std::ios::binary) << bytes;
}

// Writes or replaces a file, and makes its folder.
inline void put(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline void write_gz(const std::string& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
}

inline std::string zst(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

inline std::string big_endian(uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
  return out;
}

template <typename T>
inline std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

inline Json spec_of(const char* stage, Json options, const Json& more = Json::object()) {
  options["stage"] = stage;
  Json out = more;
  out["stages"] = Json::array({options});
  return out;
}

// Returns all items of an epoch.
inline std::vector<Item> read_all(Pipeline& p) {
  std::vector<Item> out;
  Item item;
  while (p.next(item) == Pipeline::Next::item) out.push_back(item);
  return out;
}
inline std::vector<Item> read_all(const Json& spec) {
  Pipeline p(spec);
  return read_all(p);
}

// Returns the message of the error with which reading ends.
inline std::string failure(const Json& spec) {
  try {
    read_all(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

template <typename T>
inline std::vector<T> values(const Item& item, const char* field) {
  const Tensor* t = item.find(field);
  if (!t) return {};
  return {t->view<T>().begin(), t->view<T>().end()};
}
inline std::string text(const Item& item, const char* field) {
  const auto chars = values<char>(item, field);
  return {chars.begin(), chars.end()};
}
inline int32_t number(const Item& item, const char* field) {
  return values<int32_t>(item, field).at(0);
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// Files of each kind -----------------------------------------------------------------------------

inline std::string idx_images(uint32_t n, uint32_t h, uint32_t w) {
  std::string out = std::string("\0\0\x08\x03", 4) + big_endian(n) + big_endian(h) + big_endian(w);
  for (uint32_t i = 0; i < n * h * w; ++i) out += static_cast<char>(i);
  return out;
}
inline std::string idx_labels(uint32_t n) {
  std::string out = std::string("\0\0\x08\x01", 4) + big_endian(n);
  for (uint32_t i = 0; i < n; ++i) out += static_cast<char>(i % 10);
  return out;
}

inline std::string npy(const std::string& descr, const std::string& shape,
                       const std::string& data) {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize((10 + header.size() + 64) / 64 * 64 - 10, ' ');
  header.back() = '\n';
  return "\x93NUMPY\x01" + std::string(1, '\0') + raw(static_cast<uint16_t>(header.size())) +
         header + data;
}

inline std::string delimited(int field, const std::string& bytes) {
  std::string out(1, static_cast<char>(field << 3 | 2));
  for (size_t n = bytes.size();; n >>= 7) {
    out += static_cast<char>((n & 0x7F) | (n > 0x7F ? 0x80 : 0));
    if (n <= 0x7F) break;
  }
  return out + bytes;
}

inline std::string feature(const std::string& name, int kind, const std::string& list) {
  return delimited(1, delimited(1, name) + delimited(2, delimited(kind, list)));
}

inline uint32_t masked_crc(const std::string& bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

inline std::string tf_record(const std::string& data) {
  const std::string length = raw(static_cast<uint64_t>(data.size()));
  return length + raw(masked_crc(length)) + data + raw(masked_crc(data));
}

// A record with the features "png", "x" and "label".
inline std::string example(int number) {
  return tf_record(delimited(
      1, feature("png", 1, delimited(1, "image " + std::to_string(number))) +
             feature("x", 2, delimited(1, raw(0.5f) + raw(static_cast<float>(number)))) +
             feature("label", 3, delimited(1, std::string(1, static_cast<char>(number))))));
}

}  // namespace etr::test
