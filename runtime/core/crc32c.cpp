#include "core/crc32c.h"

#include <array>
#include <cstring>

#if defined(__aarch64__) && defined(__GNUC__) && (defined(__linux__) || defined(__APPLE__))
#define ETR_ARM_CRC
#include <arm_acle.h>
#endif
#if defined(ETR_ARM_CRC) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace etr {
namespace {

using Table = std::array<std::array<uint32_t, 256>, 8>;

// Slicing-by-8 (Kounavis and Berry 2005): table[k][b] is the CRC of byte b followed by k zero
// bytes.
constexpr Table make_table() {
  Table table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0u);
    table[0][i] = crc;
  }
  for (uint32_t i = 0; i < 256; ++i)
    for (size_t k = 1; k < 8; ++k)
      table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 0xFF];
  return table;
}

constexpr Table kTable = make_table();

uint32_t by_table(std::span<const std::byte> bytes, uint32_t crc) {
  const auto at = [&](size_t i) { return static_cast<uint32_t>(bytes[i]); };
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    crc ^= at(i) | at(i + 1) << 8 | at(i + 2) << 16 | at(i + 3) << 24;
    crc = kTable[7][crc & 0xFF] ^ kTable[6][(crc >> 8) & 0xFF] ^ kTable[5][(crc >> 16) & 0xFF] ^
          kTable[4][crc >> 24] ^ kTable[3][at(i + 4)] ^ kTable[2][at(i + 5)] ^
          kTable[1][at(i + 6)] ^ kTable[0][at(i + 7)];
  }
  for (; i < bytes.size(); ++i) crc = (crc >> 8) ^ kTable[0][(crc ^ at(i)) & 0xFF];
  return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }

__attribute__((target("sse4.2,crc32"))) uint32_t by_instruction(std::span<const std::byte> bytes,
                                                                uint32_t crc) {
  uint64_t wide = crc;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, &bytes[i], sizeof word);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; i < bytes.size(); ++i)
    crc = __builtin_ia32_crc32qi(crc, std::to_integer<uint8_t>(bytes[i]));
  return crc;
}
#elif defined(ETR_ARM_CRC)
#ifdef __linux__
bool has_instruction() { return getauxval(AT_HWCAP) & HWCAP_CRC32; }
#else
bool has_instruction() { return true; }  // every Mac with arm64 has it
#endif

__attribute__((target("+crc"))) uint32_t by_instruction(std::span<const std::byte> bytes,
                                                        uint32_t crc) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, &bytes[i], sizeof word);
    crc = __crc32cd(crc, word);
  }
  for (; i < bytes.size(); ++i) crc = __crc32cb(crc, std::to_integer<uint8_t>(bytes[i]));
  return crc;
}
#else
bool has_instruction() { return false; }
uint32_t by_instruction(std::span<const std::byte> bytes, uint32_t crc) {
  return by_table(bytes, crc);
}
#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed) {
  static const bool instruction = has_instruction();
  return ~(instruction ? by_instruction(bytes, ~seed) : by_table(bytes, ~seed));
}

}  // namespace etr
