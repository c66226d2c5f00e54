// A minimal protocol buffer writer, enough for event files and ONNX models.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace etr {

// A message, written field by field. Nested messages are added as bytes.
class Message {
 public:
  Message& integer(int field, uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  Message& real(int field, double value) {
    key(field, 1);
    fixed(std::bit_cast<uint64_t>(value));
    return *this;
  }
  Message& real(int field, float value) {
    key(field, 5);
    fixed(std::bit_cast<uint32_t>(value));
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_.append(value);
    return *this;
  }
  Message& message(int field, const Message& nested) { return bytes(field, nested.bytes_); }

  const std::string& data() const { return bytes_; }

 private:
  void key(int field, uint64_t wire) { varint(static_cast<uint64_t>(field) << 3 | wire); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  template <typename T>
  void fixed(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }

  std::string bytes_;
};

}  // namespace etr
