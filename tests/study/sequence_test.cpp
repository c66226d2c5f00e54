#include "study/sequence.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <set>

namespace etr::test {
namespace {

using study::halton;
using study::scrambled;
using study::SequenceKind;
using study::sobol;

// The first points that Joe and Kuo list in three dimensions.
TEST(Sequence, SobolPointsAreThoseOfJoeAndKuo) {
  constexpr std::array<std::array<double, 3>, 10> kPoints{{{0, 0, 0},
                                                           {0.5, 0.5, 0.5},
                                                           {0.75, 0.25, 0.25},
                                                           {0.25, 0.75, 0.75},
                                                           {0.375, 0.375, 0.625},
                                                           {0.875, 0.875, 0.125},
                                                           {0.625, 0.125, 0.875},
                                                           {0.125, 0.625, 0.375},
                                                           {0.1875, 0.3125, 0.9375},
                                                           {0.6875, 0.8125, 0.4375}}};
  for (size_t i = 0; i < kPoints.size(); ++i)
    for (size_t d = 0; d < 3; ++d) EXPECT_EQ(sobol(i, d), kPoints[i][d]) << i << ", " << d;
}

TEST(Sequence, HaltonPointsAreRadicalInverses) {
  EXPECT_DOUBLE_EQ(halton(1, 0), 1.0 / 2);
  EXPECT_DOUBLE_EQ(halton(6, 0), 3.0 / 8);  // 6 is 110 in base 2, reversed 0.011
  EXPECT_DOUBLE_EQ(halton(5, 1), 7.0 / 9);  // 5 is 12 in base 3, reversed 0.21
  EXPECT_DOUBLE_EQ(halton(7, 2), 11.0 / 25);
}

// Checks that each block of 2^k points has one point in each of 2^k equal intervals.
void expect_stratified(size_t dimension, const std::function<double(uint64_t)>& at) {
  for (const uint64_t size : {2u, 8u, 64u, 256u})
    for (uint64_t begin = 0; begin < 512; begin += size) {
      std::set<uint64_t> intervals;
      for (uint64_t i = begin; i < begin + size; ++i)
        intervals.insert(static_cast<uint64_t>(at(i) * static_cast<double>(size)));
      ASSERT_EQ(intervals.size(), size) << "dimension " << dimension << ", from " << begin;
    }
}

TEST(Sequence, EveryPowerOfTwoBlockOfSobolIsStratified) {
  for (size_t d = 0; d < study::kMostDimensions; ++d) {
    expect_stratified(d, [&](uint64_t i) { return sobol(i, d); });
    for (const uint64_t seed : {1u, 99u})
      expect_stratified(d, [&](uint64_t i) { return scrambled(SequenceKind::sobol, i, d, seed); });
  }
}

// The first two dimensions form a (0, m, 2)-net in base 2, so each cell of the board gets one
// point. This shows that the first direction numbers are right.
TEST(Sequence, PairsOfTheFirstDimensionsFillABoard) {
  for (const uint64_t seed : {3u, 4u}) {
    std::set<std::pair<int, int>> cells;
    for (uint64_t i = 0; i < 64; ++i)
      cells.emplace(static_cast<int>(8 * scrambled(SequenceKind::sobol, i, 0, seed)),
                    static_cast<int>(8 * scrambled(SequenceKind::sobol, i, 1, seed)));
    EXPECT_EQ(cells.size(), 64u);
  }
}

TEST(Sequence, AllDimensionsDifferAndEachPairIsSpread) {
  for (size_t a = 0; a < study::kMostDimensions; ++a)
    for (size_t b = 0; b < a; ++b) {
      double product = 0;
      for (uint64_t i = 0; i < 1024; ++i) product += (sobol(i, a) - 0.5) * (sobol(i, b) - 0.5);
      EXPECT_LT(std::abs(product / 1024 * 12), 0.1) << "correlation of " << a << " and " << b;
    }
}

TEST(Sequence, BlocksOfScrambledHaltonAreStratifiedInTheirBase) {
  constexpr uint64_t kBases[] = {2, 3, 5, 7};
  for (size_t d = 0; d < 4; ++d) {
    const uint64_t size = kBases[d] * kBases[d];
    for (uint64_t begin = 0; begin < 4 * size; begin += size) {
      std::set<uint64_t> intervals;
      for (uint64_t i = begin; i < begin + size; ++i)
        intervals.insert(static_cast<uint64_t>(scrambled(SequenceKind::halton, i, d, 5) *
                                               static_cast<double>(size)));
      EXPECT_EQ(intervals.size(), size) << "dimension " << d;
    }
  }
}

TEST(Sequence, SeedsDifferAndPointsLieWithin) {
  for (const SequenceKind kind : {SequenceKind::sobol, SequenceKind::halton}) {
    int same = 0;
    for (uint64_t i = 0; i < 100; ++i)
      for (size_t d = 0; d < study::kMostDimensions; ++d) {
        const double one = scrambled(kind, i, d, 1);
        same += one == scrambled(kind, i, d, 2);
        EXPECT_EQ(one, scrambled(kind, i, d, 1));
        EXPECT_GT(one, 0);
        EXPECT_LT(one, 1);
      }
    EXPECT_LT(same, 10);
  }
}

}  // namespace
}  // namespace etr::test
