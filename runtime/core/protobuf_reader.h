// A minimal reader of protocol buffers, enough for tf.train.Example and ONNX models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "core/error.h"

namespace etr {

// Iterates over the fields of a message. The bytes come from strangers: Error(corrupt_data), which
// begins with `what`, if they end early or are no message. Allocates nothing.
class MessageReader {
 public:
  // `what` names the message in errors ("the tf.train.Example"); both must outlive the reader.
  MessageReader(std::span<const std::byte> bytes, std::string_view what)
      : rest_(bytes), what_(what) {}

  enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

  // Advances to the next field. Returns false at the end.
  bool next() {
    if (rest_.empty()) return false;
    const uint64_t tag = varint();
    number_ = tag >> 3;
    wire_ = static_cast<Wire>(tag & 7);
    if (wire_ == Wire::varint)
      value_ = varint();
    else if (wire_ == Wire::bytes)
      bytes_ = take(varint());
    else if (wire_ == Wire::fixed64 || wire_ == Wire::fixed32)
      bytes_ = take(wire_ == Wire::fixed64 ? 8 : 4);
    else
      fail(Code::corrupt_data, what_, " is damaged: wire type ", tag & 7);
    return true;
  }

  uint64_t number() const { return number_; }
  bool is(uint64_t number, Wire wire) const { return number_ == number && wire_ == wire; }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  uint64_t value() const { return value_; }
  // A field of wire type fixed32.
  float real() const {
    float out = 0;
    std::memcpy(&out, bytes_.data(), sizeof(out));
    return out;
  }

  // For packed numbers, which have no tags.
  bool empty() const { return rest_.empty(); }
  uint64_t varint() {
    uint64_t out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = std::to_integer<uint64_t>(take(1)[0]);
      out |= (byte & 0x7F) << shift;
      if (byte < 0x80) return out;
    }
    fail(Code::corrupt_data, what_, " is damaged: a number of more than 64 bits");
  }

 private:
  std::span<const std::byte> take(uint64_t size) {
    if (size > rest_.size()) fail(Code::corrupt_data, what_, " ends early");
    const auto out = rest_.first(static_cast<size_t>(size));
    rest_ = rest_.subspan(static_cast<size_t>(size));
    return out;
  }

  std::span<const std::byte> rest_, bytes_;
  std::string_view what_;
  uint64_t number_ = 0, value_ = 0;
  Wire wire_ = Wire::varint;
};

}  // namespace etr
