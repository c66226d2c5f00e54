// All floating-point numbers of 16 bits.
#include "exchange/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/half.h"

namespace etr::test {
namespace {

using exchange::BFloat16;
using exchange::Float16;

template <typename T>
T number(uint32_t bits) {
  return {static_cast<uint16_t>(bits)};
}

TEST(Numbers, Float16IsBinary16) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = number<Float16>(bits).value(),
                wanted = half_to_float(number<Float16>(bits).bits);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(Float16::of(value).value())) << bits;
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(wanted)) << bits;
    ASSERT_EQ(Float16::of(value).bits, bits);
  }
}

// A value between two neighbours is rounded to the nearer one, and from the middle to the even one.
template <typename T>
void expect_nearest(uint32_t largest) {
  for (uint32_t bits = 0; bits < largest; ++bits) {
    const float low = number<T>(bits).value(), high = number<T>(bits + 1).value();
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(T::of(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(T::of(-middle).bits, 0x8000 | (bits % 2 == 0 ? bits : bits + 1));
    ASSERT_EQ(T::of(std::nextafter(middle, low)).bits, bits);
    ASSERT_EQ(T::of(std::nextafter(middle, high)).bits, bits + 1);
  }
}

TEST(Numbers, AreRoundedToTheNearest) {
  expect_nearest<Float16>(0x7BFF);
  expect_nearest<BFloat16>(0x7F7F);
  EXPECT_EQ(Float16::of(65519.99f).bits, 0x7BFF);
  EXPECT_EQ(Float16::of(65520.0f).bits, 0x7C00);
  EXPECT_EQ(Float16::of(-INFINITY).bits, 0xFC00);
  EXPECT_EQ(BFloat16::of(INFINITY).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(BFloat16::of(NAN).value()));
}

// NaNs may differ in their bits, since the compiler may swap the operands of a sum.
template <typename T>
void expect_same(T a, T b, size_t index) {
  if (std::isnan(a.value()))
    ASSERT_TRUE(std::isnan(b.value())) << index;
  else
    ASSERT_EQ(a.bits, b.bits) << index;
}

// Sums of an odd number of elements, so that some are left after the vectors, into another array
// and in place.
template <typename T>
void expect_sums() {
  std::vector<T> a, b;
  for (uint32_t i = 0; i < 0x10003; ++i) {
    a.push_back(number<T>(i % 0x10000));
    b.push_back(number<T>(i * 40503 % 0x10000));
  }
  std::vector<T> sums(a.size());
  exchange::reduce(exchange::Reduction::sum, sums.data(), a.data(), b.data(), a.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NO_FATAL_FAILURE(expect_same(sums[i], T::of(a[i].value() + b[i].value()), i));
  exchange::reduce(exchange::Reduction::sum, a.data(), a.data(), b.data(), a.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NO_FATAL_FAILURE(expect_same(sums[i], a[i], i));
}

TEST(Numbers, SumsOfManyAreThoseOfEach) {
  expect_sums<Float16>();
  expect_sums<BFloat16>();
}

}  // namespace
}  // namespace etr::test
