#include "echo/echo_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"

namespace etr::test {
namespace {

using pipeline::Item;

TEST(CopyCounter, NeverStraysByMoreThanOne) {
  for (const double factor : {1.0, 1.1, 2.0, 2.5, 10.0 / 3, 7.77}) {
    echo::CopyCounter counter(factor);
    uint64_t sum = 0;
    for (int n = 1; n <= 10000; ++n) {
      const uint32_t copies = counter.next();
      EXPECT_TRUE(copies == std::floor(factor) || copies == std::ceil(factor)) << factor;
      sum += copies;
      ASSERT_NEAR(static_cast<double>(sum), n * factor, 1.0) << factor;
    }
  }
}

Item item_with(uint64_t ordinal, size_t bytes = 0) {
  Item item;
  item.ordinal = ordinal;
  if (bytes) item.set("x", Tensor(DType::u8, {static_cast<int64_t>(bytes)}));
  return item;
}

std::vector<std::pair<uint64_t, uint32_t>> drawn_from(echo::EchoBuffer& buffer) {
  Rng rng(1);
  std::vector<std::pair<uint64_t, uint32_t>> drawn;
  for (Item item; buffer.draw(item, rng);) drawn.emplace_back(item.ordinal, item.replica);
  return drawn;
}

TEST(EchoBuffer, LeastUsedComesFirstAndOfTheseTheOldest) {
  echo::EchoBuffer buffer(echo::Draw::least_used, 1 << 20);
  for (uint64_t i = 0; i < 3; ++i) buffer.add(item_with(i), 3, 1, 0);
  EXPECT_EQ(drawn_from(buffer), (std::vector<std::pair<uint64_t, uint32_t>>{
                                    {0, 1}, {1, 1}, {2, 1}, {0, 2}, {1, 2}, {2, 2}}));
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_EQ(buffer.copies(), 0u);
}

TEST(EchoBuffer, NewestComesFirst) {
  echo::EchoBuffer buffer(echo::Draw::newest, 1 << 20);
  for (uint64_t i = 0; i < 3; ++i) buffer.add(item_with(i), 3, 1, 0);
  EXPECT_EQ(drawn_from(buffer), (std::vector<std::pair<uint64_t, uint32_t>>{
                                    {2, 1}, {2, 2}, {1, 1}, {1, 2}, {0, 1}, {0, 2}}));
}

TEST(EchoBuffer, UniformDrawsAllAlikeAndUsesThemUp) {
  std::map<uint64_t, int> first;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    echo::EchoBuffer buffer(echo::Draw::uniform, 1 << 20);
    for (uint64_t i = 0; i < 3; ++i) buffer.add(item_with(i), 4, 1, 0);
    Rng rng(seed);
    Item item;
    ASSERT_TRUE(buffer.draw(item, rng));
    ++first[item.ordinal];
    int left = 0;
    while (buffer.draw(item, rng)) ++left;
    EXPECT_EQ(left, 8);
  }
  for (const auto& [ordinal, count] : first) EXPECT_NEAR(count, 1000, 150) << ordinal;
}

TEST(EchoBuffer, EvictsTheMostUsedAndKeepsItsBytes) {
  Rng rng(1);
  echo::EchoBuffer buffer(echo::Draw::least_used, 1000);
  for (uint64_t i = 0; i < 3; ++i) buffer.add(item_with(i), 9, 1, 300);
  EXPECT_THROW(buffer.add(item_with(3), 9, 1, 300), Error);
  Item item;
  buffer.draw(item, rng);  // 0 has been used once more than the others
  buffer.evict(rng);
  EXPECT_EQ(buffer.size(), 2u);
  EXPECT_EQ(buffer.copies(), 16u);
  buffer.add(item_with(3), 9, 1, 300);
  for (int i = 0; i < 3; ++i) {
    buffer.draw(item, rng);
    EXPECT_NE(item.ordinal, 0u);
  }
}

// A run with given times, in which nothing but the slower side waits, under an echo factor that follows
// the controller. Returns the factors decided on.
std::vector<double> decisions_in(double t_up, double t_down, double cap, double noise = 0) {
  echo::FactorController controller(cap);
  std::vector<double> factors{1};
  pipeline::Pace pace;
  double given = 0;
  for (uint64_t fresh = 0; fresh < 20000; ++fresh) {
    const double e = factors.back(), up = t_up * (1 + (fresh / 100 % 2 ? noise : -noise));
    const double time = std::max(up, e * t_down);
    pace.elapsed_s += time;
    pace.upstream_held_s += time - up;
    pace.consumer_starved_s += time - e * t_down;
    given += e;
    if (const auto decision =
            controller.observe(pace, fresh + 1, static_cast<uint64_t>(given), e)) {
      factors.push_back(decision->factor);
      EXPECT_NEAR(decision->t_up_s, t_up, 0.2 * t_up);
    }
  }
  return factors;
}

TEST(FactorController, FindsTheRatioOfTheTimes) {
  EXPECT_NEAR(decisions_in(0.004, 0.001, 100).back(), 4, 0.4);
  EXPECT_NEAR(decisions_in(0.0273, 0.0021, 100).back(), 13, 1.3);
  EXPECT_EQ(decisions_in(0.004, 0.001, 2.5).back(), 2.5);
}

TEST(FactorController, LeavesAHealthyPipelineAlone) {
  EXPECT_EQ(decisions_in(0.001, 0.001, 8).size(), 1u);
  EXPECT_EQ(decisions_in(0.001, 0.004, 8).size(), 1u);
}

TEST(FactorController, NoiseDoesNotMoveIt) {
  EXPECT_LE(decisions_in(0.004, 0.001, 100, 0.08).size(), 4u);
}

}  // namespace
}  // namespace etr::test
