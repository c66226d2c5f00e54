#include "study/durations.h"

#include <gtest/gtest.h>

#include <cmath>

namespace etr::test {
namespace {

using study::Durations;

TEST(DurationsOfTrials, AreThoseOfTheCondition) {
  Durations durations;
  EXPECT_TRUE(std::isnan(durations.expected({0, 0})));
  durations.add({0, 0}, 1, false);
  durations.add({0, 0}, 3, false);
  durations.add({0, 1}, 20, false);
  EXPECT_EQ(durations.expected({0, 0, 5, 7}), 2);
  EXPECT_EQ(durations.expected({0, 1}), 20);
}

TEST(DurationsOfTrials, OrThoseOfTheWorkloadOrOfAll) {
  Durations durations;
  durations.add({0, 0}, 2, false);
  durations.add({0, 1}, 4, false);
  durations.add({1, 0}, 12, false);
  EXPECT_EQ(durations.expected({0, 2}), 3);
  EXPECT_EQ(durations.expected({1, 2}), 12);
  EXPECT_EQ(durations.expected({2, 0}), 6);
}

// A study that goes on when the machine is four times as fast as before.
TEST(DurationsOfTrials, FollowThePaceOfNewTrials) {
  Durations durations;
  for (int i = 0; i < 100; ++i) durations.add({0, 0}, 40, false);
  durations.add({0, 1}, 80, false);
  EXPECT_EQ(durations.expected({0, 0}), 40);
  for (int i = 0; i < 60; ++i) durations.add({0, 0}, 10, true);
  EXPECT_EQ(durations.expected({0, 0}), 10);
  EXPECT_NEAR(durations.expected({0, 1}), 20, 5);
}

}  // namespace
}  // namespace etr::test
