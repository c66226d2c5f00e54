#include "core/sha256.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace etr {
namespace {

constexpr size_t kBlock = 64;

// Round constants: the first 32 bits of the fractional parts of the cube roots of the first 64
// primes. Start values: the same of the square roots of the first 8 primes.
struct Constants {
  std::array<uint32_t, 64> round{};
  std::array<uint32_t, 8> start{};

  Constants() {
    size_t found = 0;
    for (uint32_t n = 2; found < round.size(); ++n) {
      bool prime = true;
      for (uint32_t d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
      if (!prime) continue;
      if (found < start.size()) start[found] = fraction(std::sqrt(static_cast<long double>(n)));
      round[found++] = fraction(std::cbrt(static_cast<long double>(n)));
    }
  }
  static uint32_t fraction(long double root) {
    return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
  }
};

void compress(std::array<uint32_t, 8>& state, const unsigned char* block, const Constants& k) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i)
    w[i] = static_cast<uint32_t>(block[4 * i]) << 24 |
           static_cast<uint32_t>(block[4 * i + 1]) << 16 |
           static_cast<uint32_t>(block[4 * i + 2]) << 8 | block[4 * i + 3];
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                         ((e & f) ^ (~e & g)) + k.round[i] + w[i];
    const uint32_t two =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
  }
  const std::array<uint32_t, 8> mixed{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += mixed[i];
}

}  // namespace

std::string sha256(std::string_view text) {
  static const Constants constants;
  std::string padded(text);
  padded += '\x80';
  padded.resize((padded.size() + 8 + kBlock - 1) / kBlock * kBlock - 8, '\0');
  const uint64_t bits = static_cast<uint64_t>(text.size()) * 8;
  for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(bits >> shift);
  std::array<uint32_t, 8> state = constants.start;
  for (size_t at = 0; at < padded.size(); at += kBlock)
    compress(state, reinterpret_cast<const unsigned char*>(padded.data()) + at, constants);
  std::string out;
  for (const uint32_t word : state)
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(word >> shift);
  return out;
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::string inner(key.size() > kBlock ? sha256(key) : std::string(key));
  inner.resize(kBlock, '\0');
  std::string outer = inner;
  for (char& c : inner) c ^= 0x36;
  for (char& c : outer) c ^= 0x5C;
  return sha256(outer + sha256(inner + std::string(text)));
}

std::string to_hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

}  // namespace etr
