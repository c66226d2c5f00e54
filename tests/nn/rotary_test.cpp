// The options of rotary positions, from the angles that they make.
#include "nn/rotary.h"

#include <gtest/gtest.h>

#include <cmath>

namespace etr::test {
namespace {

TEST(Rotary, OptionsAreFoundByTheirAngles) {
  const struct {
    int64_t head;
    nn::Rotary rotary;
    bool open = false;  // whether other scalings have the same angles
  } kCases[] = {
      {2, {10000, {}}},
      {4, {10000, {}}},
      {96, {1000000, {}}},
      {64, {12345, {}}},
      {128, {500000, {8, 1, 4, 8192}}},
      {64, {500000, {32, 1, 4, 8192}}},
      {12, {100, {8, 1, 4, 16}}},
      {16, {10000, {2, 1, 4, 100}}, true},     // one pair between the two ends
      {16, {10000, {2, 1, 1.5, 100}}, true},   // none
      {16, {10000, {4, 1, 4, 1}}, true},       // all are scaled
      {16, {10000, {4, 0.5, 2, 4096}}, true},  // another low factor
  };
  for (const auto& [head, rotary, open] : kCases) {
    std::vector<double> angles;
    for (int64_t i = 0; i < head / 2; ++i)
      angles.push_back(static_cast<float>(nn::rotary_frequency(rotary, head, i)));
    const auto fits = [&](const nn::Rotary& tried) {
      for (size_t i = 0; i < angles.size(); ++i)
        if (!(std::abs(nn::rotary_frequency(tried, head, static_cast<int64_t>(i)) / angles[i] - 1) <
              2e-6))
          return false;
      return true;
    };
    const auto found = nn::rotary_of(angles, fits);
    ASSERT_TRUE(found) << head << " " << rotary.base;
    EXPECT_EQ(found->base, rotary.base);
    EXPECT_EQ(found->scaling.size(), rotary.scaling.size());
    if (!open) {
      EXPECT_EQ(found->scaling, rotary.scaling);
    }
  }
}

}  // namespace
}  // namespace etr::test
