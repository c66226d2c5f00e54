#include "study/sequence.h"

#include <array>
#include <numeric>

#include "core/error.h"
#include "core/rng.h"

namespace etr::study {
namespace {

constexpr size_t kBits = 32;  // of a Sobol coordinate, so 2^32 points differ

// A primitive polynomial of degree `degree` with the inner coefficients `inner`, and the first
// direction numbers, from the list new-joe-kuo-6 of S. Joe and F. Y. Kuo, "Constructing Sobol
// sequences with better two-dimensional projections", SIAM J. Sci. Comput. 30 (2008). The first
// dimension has none: it is the van der Corput sequence.
struct Polynomial {
  uint32_t degree, inner;
  std::array<uint32_t, 6> first;
};
constexpr std::array<Polynomial, kMostDimensions - 1> kPolynomials{{
    {1, 0, {1}},
    {2, 1, {1, 3}},
    {3, 1, {1, 3, 1}},
    {3, 2, {1, 1, 1}},
    {4, 1, {1, 1, 3, 3}},
    {4, 4, {1, 3, 5, 13}},
    {5, 2, {1, 1, 5, 5, 17}},
    {5, 4, {1, 1, 5, 5, 5}},
    {5, 7, {1, 1, 7, 11, 19}},
    {5, 11, {1, 1, 5, 1, 1}},
    {5, 13, {1, 1, 1, 3, 11}},
    {5, 14, {1, 3, 5, 5, 31}},
    {6, 1, {1, 3, 3, 9, 7, 49}},
    {6, 13, {1, 1, 1, 15, 21, 21}},
    {6, 16, {1, 3, 1, 13, 27, 49}},
}};

constexpr std::array<uint32_t, kMostDimensions> kPrimes{2,  3,  5,  7,  11, 13, 17, 19,
                                                        23, 29, 31, 37, 41, 43, 47, 53};

using Directions = std::array<uint32_t, kBits>;

// Computes one dimension by the recurrence m_i = 2 a_1 m_{i-1} ^ 2^2 a_2 m_{i-2} ^ ... ^ 2^s
// m_{i-s} ^ m_{i-s}.
Directions directions_of(size_t dimension) {
  Directions out{};
  if (dimension == 0) {
    for (size_t i = 0; i < kBits; ++i) out[i] = 1u << (kBits - 1 - i);
    return out;
  }
  const Polynomial& p = kPolynomials[dimension - 1];
  for (size_t i = 0; i < kBits; ++i) {
    if (i < p.degree) {
      out[i] = p.first[i] << (kBits - 1 - i);
      continue;
    }
    out[i] = out[i - p.degree] ^ (out[i - p.degree] >> p.degree);
    for (uint32_t k = 1; k < p.degree; ++k)
      if ((p.inner >> (p.degree - 1 - k)) & 1) out[i] ^= out[i - k];
  }
  return out;
}

void check_dimension(size_t dimension) {
  if (dimension >= kMostDimensions)
    fail(Code::invalid_argument, "a space has at most ", kMostDimensions, " keys");
}

uint32_t sobol_bits(uint64_t index, size_t dimension) {
  static const auto kDirections = [] {
    std::array<Directions, kMostDimensions> all;
    for (size_t d = 0; d < kMostDimensions; ++d) all[d] = directions_of(d);
    return all;
  }();
  check_dimension(dimension);
  const uint64_t gray = index ^ (index >> 1);
  uint32_t bits = 0;
  for (size_t i = 0; i < kBits; ++i)
    if ((gray >> i) & 1) bits ^= kDirections[dimension][i];
  return bits;
}

uint32_t owen(uint32_t bits, uint64_t seed) {
  uint32_t out = bits;
  for (uint32_t level = 0; level < kBits; ++level) {
    const uint64_t above = level == 0 ? 0 : bits >> (kBits - level);
    const uint64_t flips = mix64(seed ^ mix64((uint64_t{level} << 32) | above)) & 1;
    out ^= static_cast<uint32_t>(flips) << (kBits - 1 - level);
  }
  return out;
}

// `digit(place, value)` replaces a digit. Stops when digits are too small to matter.
template <typename Digit>
double radical_inverse(uint64_t index, uint32_t base, const Digit& digit) {
  double value = 0, weight = 1;
  for (uint64_t place = 0; weight > 0x1.0p-40; ++place, index /= base) {
    weight /= base;
    value += weight * digit(place, static_cast<uint32_t>(index % base));
  }
  return value;
}

}  // namespace

SequenceKind sequence_named(const std::string& name) {
  return name == "halton" ? SequenceKind::halton : SequenceKind::sobol;
}

double sobol(uint64_t index, size_t dimension) { return sobol_bits(index, dimension) * 0x1.0p-32; }

double halton(uint64_t index, size_t dimension) {
  check_dimension(dimension);
  return radical_inverse(index, kPrimes[dimension], [](uint64_t, uint32_t digit) { return digit; });
}

double scrambled(SequenceKind kind, uint64_t index, size_t dimension, uint64_t seed) {
  const uint64_t own = mix64(mix64(seed) ^ dimension);
  if (kind == SequenceKind::sobol)
    return (owen(sobol_bits(index, dimension), own) + 0.5) * 0x1.0p-32;
  check_dimension(dimension);
  const uint32_t base = kPrimes[dimension];
  const double value = radical_inverse(index, base, [&](uint64_t place, uint32_t digit) {
    std::vector<uint32_t> digits(base);
    std::iota(digits.begin(), digits.end(), 0u);
    Rng rng(own, place);
    shuffle(digits, rng);
    return digits[digit];
  });
  return value * (1 - 0x1.0p-32) + 0x1.0p-33;
}

}  // namespace etr::study
