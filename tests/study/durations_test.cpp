#include "study/durations.h"

#include <gtest/gtest.h>

#include <cmath>

namespace etr::test {
namespace {

using study::Durations;

TEST(DurationsOfTrials, AreThoseOfTheCondition) {
  Durations durations;
  EXPECT_TRUE(std::isnan(durations.expected({0, 0})));
  durations.add({0, 0}, 1);
  durations.add({0, 0}, 3);
  durations.add({0, 1}, 20);
  EXPECT_EQ(durations.expected({0, 0, 5, 7}), 2);
  EXPECT_EQ(durations.expected({0, 1}), 20);
}

TEST(DurationsOfTrials, OrThoseOfTheWorkloadOrOfAll) {
  Durations durations;
  durations.add({0, 0}, 2);
  durations.add({0, 1}, 4);
  durations.add({1, 0}, 12);
  EXPECT_EQ(durations.expected({0, 2}), 3);
  EXPECT_EQ(durations.expected({1, 2}), 12);
  EXPECT_EQ(durations.expected({2, 0}), 6);
}

}  // namespace
}  // namespace etr::test
