#include "core/packed.h"

#include <array>

#include "core/error.h"
#include "core/zstd.h"

namespace etr {
namespace {

constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
// Size limit of an unpacked list, in bytes. A run that saves as many numbers, each of at least a
// byte, holds gigabytes of notes.
constexpr uint64_t kLargest = uint64_t{1} << 27;

[[noreturn]] void damaged() { fail(Code::corrupt_data, "a packed list of numbers is damaged"); }

// Base64 (RFC 4648) without padding.
std::string to_text(std::string_view bytes) {
  std::string text;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : bytes) {
    bits = bits << 8 | static_cast<unsigned char>(c);
    for (held += 8; held >= 6; held -= 6) text += kDigits[bits >> (held - 6) & 63];
  }
  if (held > 0) text += kDigits[bits << (6 - held) & 63];
  return text;
}

std::string from_text(std::string_view text) {
  std::array<int, 256> value;
  value.fill(-1);
  for (int i = 0; i < 64; ++i) value[static_cast<unsigned char>(kDigits[i])] = i;
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const int digit = value[static_cast<unsigned char>(c)];
    if (digit < 0) damaged();
    bits = bits << 6 | static_cast<uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 255);
  }
  return bytes;
}

}  // namespace

std::string pack_numbers(std::span<const uint64_t> numbers) {
  std::string bytes;
  for (uint64_t n : numbers) {
    for (; n >= 128; n >>= 7) bytes += static_cast<char>(n | 128);
    bytes += static_cast<char>(n);
  }
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size =
      zstd_result(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 3));
  if (ZSTD_isError(size)) fail(Code::internal, "zstd: ", ZSTD_getErrorName(size));
  return to_text({packed.data(), size});
}

std::vector<uint64_t> unpack_numbers(std::string_view text) {
  const std::string packed = from_text(text);
  const uint64_t size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR) damaged();
  if (size > kLargest)
    fail(Code::corrupt_data, "a packed list of ", size, " bytes; at most ", kLargest, " are read");
  std::string bytes(size, '\0');
  if (zstd_result(ZSTD_decompress(bytes.data(), bytes.size(), packed.data(), packed.size())) !=
      size)
    damaged();
  std::vector<uint64_t> numbers;
  uint64_t n = 0;
  unsigned shift = 0;
  for (const char c : bytes) {
    if (shift > 63) damaged();
    n |= static_cast<uint64_t>(c & 127) << shift;
    shift += 7;
    if (c & 128) continue;
    numbers.push_back(n);
    n = shift = 0;
  }
  if (shift != 0) damaged();
  return numbers;
}

}  // namespace etr
