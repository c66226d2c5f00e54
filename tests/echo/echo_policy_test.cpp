#include "echo/echo_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

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

using Drawn = std::vector<std::pair<uint64_t, uint32_t>>;  // ordinals and replicas

Drawn drawn_from(echo::EchoBuffer& buffer) {
  Rng rng(1);
  Drawn drawn;
  for (Item item; buffer.draw(item, rng);) drawn.emplace_back(item.ordinal, item.replica);
  return drawn;
}

// Adds a sample with `uses` uses, the first of which has been made. It leaves the buffer when it is
// used up.
void add(echo::EchoBuffer& buffer, uint64_t ordinal, uint32_t uses, int64_t bytes = 0) {
  Rng rng(ordinal);
  buffer.add(item_with(ordinal), {uses, uses, 1}, bytes, rng);
}

TEST(EchoBuffer, LeastUsedComesFirstAndOfTheseTheOldest) {
  echo::EchoBuffer buffer(echo::Draw::least_used, 1 << 20);
  for (uint64_t i = 0; i < 3; ++i) add(buffer, i, 3);
  EXPECT_EQ(drawn_from(buffer), (Drawn{{0, 1}, {1, 1}, {2, 1}, {0, 2}, {1, 2}, {2, 2}}));
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_EQ(buffer.copies(), 0u);
}

TEST(EchoBuffer, NewestComesFirst) {
  echo::EchoBuffer buffer(echo::Draw::newest, 1 << 20);
  for (uint64_t i = 0; i < 3; ++i) add(buffer, i, 3);
  EXPECT_EQ(drawn_from(buffer), (Drawn{{2, 1}, {2, 2}, {1, 1}, {1, 2}, {0, 1}, {0, 2}}));
}

TEST(EchoBuffer, UniformDrawsAllAlikeAndUsesThemUp) {
  std::map<uint64_t, int> first;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    echo::EchoBuffer buffer(echo::Draw::uniform, 1 << 20);
    for (uint64_t i = 0; i < 3; ++i) add(buffer, i, 4);
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
  for (uint64_t i = 0; i < 3; ++i) add(buffer, i, 9, 300);
  EXPECT_THROW(add(buffer, 3, 9, 300), Error);
  Item item;
  buffer.draw(item, rng);  // sample 0 now has one use more than the others
  buffer.evict(rng);
  EXPECT_EQ(buffer.size(), 2u);
  EXPECT_EQ(buffer.copies(), 16u);
  add(buffer, 3, 9, 300);
  for (int i = 0; i < 3; ++i) {
    buffer.draw(item, rng);
    EXPECT_NE(item.ordinal, 0u);
  }
}

// A steady run: when 200 samples are held, each fresh sample replaces one of them. Six echoes
// follow each fresh sample.
struct Steady {
  explicit Steady(echo::Draw draw, uint64_t seed) : buffer(draw, 1 << 20), rng(seed) {
    for (uint64_t n = 0; n < 3000; ++n) {
      if (buffer.size() == 200) buffer.evict(rng);
      buffer.add(item_with(n), {20, 20, 1}, 0, rng);
      given.push_back(n);
      Item item;
      for (int echo = 0; echo < 6 && buffer.draw(item, rng); ++echo) given.push_back(item.ordinal);
    }
  }
  echo::EchoBuffer buffer;
  Rng rng;
  std::vector<uint64_t> given;
};

double distinct_in_64(const std::vector<uint64_t>& given) {
  double sum = 0;
  size_t batches = 0;
  for (size_t at = 5000; at + 64 <= given.size(); at += 64, ++batches)
    sum +=
        static_cast<double>(std::set<uint64_t>(given.begin() + at, given.begin() + at + 64).size());
  return sum / static_cast<double>(batches);
}

TEST(EchoBuffer, SpreadUsesAllAlikeAndMixesThem) {
  const Steady run(echo::Draw::spread, 1);
  std::map<uint64_t, int> uses;
  for (const uint64_t n : run.given) ++uses[n];
  for (uint64_t n = 400; n < 2600; ++n) {
    EXPECT_GE(uses[n], 4) << n;
    EXPECT_LE(uses[n], 11) << n;
  }
  EXPECT_GT(distinct_in_64(run.given), 55);
  EXPECT_LT(distinct_in_64(Steady(echo::Draw::least_used, 1).given), 20)
      << "with a steady stream of fresh samples, the newest is always the least used";
}

TEST(EchoBuffer, WhatIsUsedUpMayBeUsedAgainTheLeastUsedFirst) {
  Rng rng(1);
  for (const echo::Draw draw :
       {echo::Draw::spread, echo::Draw::least_used, echo::Draw::uniform, echo::Draw::newest}) {
    echo::EchoBuffer buffer(draw, 1 << 20);
    buffer.add(item_with(0), {3, 6, 1}, 0, rng);
    buffer.add(item_with(1), {2, 4, 1}, 0, rng);
    EXPECT_EQ(buffer.copies(), 3u);
    EXPECT_EQ(drawn_from(buffer).size(), 3u);
    EXPECT_EQ(buffer.size(), 2u);
    Drawn spent;
    for (Item item; buffer.draw_spent(item, rng);) spent.emplace_back(item.ordinal, item.replica);
    EXPECT_EQ(spent, (Drawn{{1, 2}, {0, 3}, {1, 3}, {0, 4}, {0, 5}}));
    EXPECT_EQ(buffer.size(), 0u);
  }
}

// The uses that the evicted had left tell which it was.
TEST(EchoBuffer, EvictsWhatIsWorthLeast) {
  using Left = std::vector<uint32_t>;
  const auto evicted = [](echo::Draw draw, std::initializer_list<echo::EchoBuffer::Uses> samples) {
    Rng rng(1);
    echo::EchoBuffer buffer(draw, 1 << 20);
    uint64_t ordinal = 0;
    for (const auto& uses : samples) buffer.add(item_with(ordinal++), uses, 0, rng);
    Left out;
    while (buffer.size() > 0) out.push_back(buffer.evict(rng));
    EXPECT_EQ(buffer.evict(rng), 0u) << "there is none";
    return out;
  };
  const auto differing = {echo::EchoBuffer::Uses{9, 9, 1}, {9, 9, 6}, {7, 9, 4}, {9, 9, 4}};
  EXPECT_EQ(evicted(echo::Draw::spread, differing), (Left{8, 3, 3, 5})) << "the oldest";
  EXPECT_EQ(evicted(echo::Draw::newest, differing), (Left{8, 3, 3, 5}));
  EXPECT_EQ(evicted(echo::Draw::least_used, differing), (Left{3, 3, 5, 8}))
      << "the most used, of these the oldest";
  const auto spent = {echo::EchoBuffer::Uses{9, 9, 1}, {3, 9, 3}, {9, 9, 6}};
  EXPECT_EQ(evicted(echo::Draw::least_used, spent), (Left{0, 3, 8})) << "without uses left";
  EXPECT_EQ(evicted(echo::Draw::newest, spent), (Left{0, 8, 3}));
  EXPECT_EQ(evicted(echo::Draw::uniform, spent)[0], 0u);
}

TEST(EchoBuffer, OfTheSpentTheOldestOfTheMostUsedIsEvicted) {
  for (const echo::Draw draw : {echo::Draw::least_used, echo::Draw::uniform, echo::Draw::newest}) {
    Rng rng(1);
    echo::EchoBuffer buffer(draw, 1 << 20);
    uint64_t ordinal = 0;
    for (const uint32_t used : {3, 5, 5}) buffer.add(item_with(ordinal++), {2, 9, used}, 0, rng);
    buffer.evict(rng);
    Item item;
    std::set<uint64_t> left;
    while (buffer.draw_spent(item, rng)) left.insert(item.ordinal);
    EXPECT_EQ(left, (std::set<uint64_t>{0, 2}));
  }
}

TEST(EchoBuffer, OnlyWhatHasNoPlannedUsesIsSpent) {
  for (const echo::Draw draw :
       {echo::Draw::spread, echo::Draw::least_used, echo::Draw::uniform, echo::Draw::newest}) {
    Rng rng(1);
    echo::EchoBuffer buffer(draw, 1 << 20);
    Item item;
    buffer.add(item_with(0), {0, 2, 0}, 0, rng);
    EXPECT_FALSE(buffer.draw(item, rng));
    EXPECT_TRUE(buffer.draw_spent(item, rng));
    EXPECT_EQ(buffer.copies(), 0u) << "extra uses are not among the planned ones";
    buffer.clear();
    buffer.add(item_with(1), {2, 2, 0}, 0, rng);
    EXPECT_FALSE(buffer.draw_spent(item, rng));
    buffer.add(item_with(2), {2, 2, 2}, 0, rng);
    EXPECT_EQ(buffer.size(), 1u) << "what is used up is not held";
  }
}

TEST(EchoBuffer, TakesAsManyBytesAsItMayAndIsEmptyOnceCleared) {
  for (const echo::Draw draw :
       {echo::Draw::spread, echo::Draw::least_used, echo::Draw::uniform, echo::Draw::newest}) {
    echo::EchoBuffer buffer(draw, 1000);
    Drawn first;
    for (int turn = 0; turn < 2; ++turn) {
      for (uint64_t i = 0; i < 2; ++i) add(buffer, i, 3, 500);
      EXPECT_EQ(buffer.size(), 2u);
      EXPECT_EQ(buffer.copies(), 4u);
      EXPECT_THROW(add(buffer, 2, 3, 1), Error);
      Rng rng(1);
      Drawn drawn;
      Item item;
      for (int i = 0; i < 3 && buffer.draw(item, rng); ++i)
        drawn.emplace_back(item.ordinal, item.replica);
      if (turn == 0) first = drawn;
      EXPECT_EQ(drawn, first) << "nothing of what was before shows";
      buffer.clear();
      EXPECT_EQ(buffer.size(), 0u);
      EXPECT_EQ(buffer.copies(), 0u);
      EXPECT_FALSE(buffer.draw(item, rng));
    }
  }
  echo::EchoBuffer small(echo::Draw::spread, 10);
  try {
    add(small, 0, 3, 11);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("one sample takes 11 bytes"), std::string::npos);
  }
}

TEST(EchoBuffer, SaysWhatUsesTheEvictedHadLeft) {
  Rng rng(1);
  for (const echo::Draw draw :
       {echo::Draw::spread, echo::Draw::least_used, echo::Draw::uniform, echo::Draw::newest}) {
    echo::EchoBuffer buffer(draw, 1 << 20);
    for (uint64_t i = 0; i < 9; ++i) buffer.add(item_with(i), {5, 10, 1}, 0, rng);
    uint64_t left = buffer.copies();
    for (Item item; left > 20; --left) ASSERT_TRUE(buffer.draw(item, rng));
    while (buffer.size() > 0) left -= buffer.evict(rng);
    EXPECT_EQ(left, 0u);
    EXPECT_EQ(buffer.copies(), 0u);
  }
}

TEST(Credit, KeepsToItsBandAndIsPaidBack) {
  echo::Credit credit(5);
  const auto spend_all = [&] {
    int spent = 0;
    for (; credit.may_spend(); ++spent) credit.spend();
    return spent;
  };
  EXPECT_EQ(spend_all(), 5);
  EXPECT_EQ(credit.repaid(4), 1u) << "it keeps its first use";
  EXPECT_EQ(credit.repaid(4), 2u) << "the rest of the debt is paid back";
  EXPECT_EQ(credit.repaid(4), 4u);
  credit.save(3);
  credit.save(300);
  EXPECT_EQ(spend_all(), 10) << "the savings and the allowed debt";
}

// Simulates a consumer that takes `rate` items per second and always gets them, from an upstream
// that yields `fresh_in(second)` samples per second. If the plan gives more echoes than the
// consumer takes, upstream is held back.
struct PlannedRun {
  template <typename FreshIn>
  PlannedRun(double cap, double rate, const FreshIn& fresh_in, double seconds = 60)
      : plan(cap, 8000) {
    pipeline::Pace pace;
    double wanted = 0, waiting = 0;
    for (double dt = 0.01; pace.elapsed_s < seconds; pace.elapsed_s += dt) {
      waiting = std::min(waiting + fresh_in(pace.elapsed_s) * dt, 200.0);
      wanted += rate * dt;
      for (; waiting >= 1 && given < wanted; --waiting) {
        const uint32_t echoes = plan.echoes_after_fresh();
        given += 1 + echoes;
        planned += echoes;
        ++fresh;
      }
      if (waiting >= 1) pace.upstream_held_s += dt;
      for (; given < wanted; ++given) plan.gave_extra();
      plan.observe(pace, fresh, static_cast<uint64_t>(given));
      if (pace.elapsed_s < seconds / 2) continue;
      least = std::min(least, plan.factor());
      most = std::max(most, plan.factor());
    }
  }
  echo::EchoPlan plan;
  uint64_t fresh = 0, planned = 0;
  double given = 0, least = 1e9, most = 0;  // least, most: of the factor in the second half
};

TEST(EchoPlan, FindsTheRatioOfTheRates) {
  for (const double slower : {1.5, 4.0, 13.0}) {
    const PlannedRun run(100, 1000, [&](double) { return 1000 / slower; });
    EXPECT_NEAR(run.least, slower, 0.1 * slower);
    EXPECT_NEAR(run.most, slower, 0.1 * slower);
  }
  EXPECT_EQ(PlannedRun(2.5, 1000, [](double) { return 100.0; }).least, 2.5);
}

TEST(EchoPlan, BurstsDoNotMoveIt) {
  const auto bursts = [](double second) { return std::fmod(second, 2) < 0.5 ? 560.0 : 0; };
  const PlannedRun run(100, 1000, bursts, 100);
  EXPECT_GT(run.least, 5);
  EXPECT_LT(run.most, 9) << "1000 per second over 140 on average";
  EXPECT_NEAR(run.given / static_cast<double>(run.fresh), 7.1, 0.4);
}

TEST(EchoPlan, LeavesAHealthyPipelineAlone) {
  for (const double rate : {1100.0, 4000.0}) {
    const PlannedRun run(8, 1000, [&](double) { return rate; });
    EXPECT_EQ(run.most, 1);
    EXPECT_EQ(run.plan.factor(), 1);
  }
}

TEST(EchoPlan, ComesBackToOneWhenUpstreamIsFasterAgain) {
  const PlannedRun run(
      8, 1000, [](double second) { return second < 30 ? 200.0 : 2000.0; }, 90);
  EXPECT_EQ(run.plan.factor(), 1);
}

TEST(EchoPlan, LaterSamplesRepayWhatWasGivenBeyondIt) {
  const PlannedRun run(8, 1000, [](double) { return 250.0; });
  const auto echoes_after = [](echo::EchoPlan plan, int extra) {
    while (extra-- > 0) plan.gave_extra();
    int64_t echoes = 0;
    for (int fresh = 0; fresh < 1000; ++fresh) echoes += plan.echoes_after_fresh();
    return echoes;
  };
  EXPECT_EQ(echoes_after(run.plan, 0) - echoes_after(run.plan, 30), 30);
}

// Otherwise, echoes given before the factor was known would be owed for ever, and no echoes would
// be planned.
TEST(EchoPlan, OldDebtsAreForgotten) {
  const PlannedRun run(8, 1000, [](double) { return 250.0; });
  EXPECT_GT(static_cast<double>(run.planned), 0.5 * 3 * static_cast<double>(run.fresh));
}

}  // namespace
}  // namespace etr::test
