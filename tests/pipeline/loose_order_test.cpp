#include "pipeline/loose_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace etr::test {
namespace {

using pipeline::Chunk;
using pipeline::End;
using pipeline::LooseOrder;

Chunk chunk_of(uint64_t sequence, End end = End::none, uint64_t ends_before = 0) {
  Chunk out;
  out.sequence = sequence;
  out.end = end;
  out.ends_before = ends_before;
  out.items.resize(1);
  return out;
}

// Sequence numbers of released chunks, and whether they overtook others.
using Gone = std::vector<std::pair<uint64_t, bool>>;

Gone add(LooseOrder& order, Chunk&& chunk) {
  Gone out;
  for (const Chunk& gone : order.add(std::move(chunk)))
    out.emplace_back(gone.sequence, gone.items[0].overtakes);
  return out;
}

TEST(LooseOrder, LetsFinishedOnesGoFirstWithinItsWindow) {
  LooseOrder order(3, [](uint64_t) { return true; });
  EXPECT_EQ(add(order, chunk_of(1)), (Gone{{1, true}}));
  EXPECT_EQ(add(order, chunk_of(3)), (Gone{{3, true}}));
  EXPECT_EQ(add(order, chunk_of(4)), Gone{}) << "it is four places behind the first";
  EXPECT_EQ(add(order, chunk_of(0)), (Gone{{0, false}, {4, true}})) << "now 2 is the first";
  EXPECT_EQ(add(order, chunk_of(2)), (Gone{{2, false}}));
  EXPECT_EQ(add(order, chunk_of(5)), (Gone{{5, false}}));
}

TEST(LooseOrder, NothingPassesTheEndOfAPass) {
  LooseOrder order(10, [](uint64_t) { return true; });
  EXPECT_EQ(add(order, chunk_of(3, End::none, 1)), Gone{}) << "the end has not arrived yet";
  EXPECT_EQ(add(order, chunk_of(2, End::pass)), Gone{}) << "the end does not overtake either";
  EXPECT_EQ(add(order, chunk_of(1)), (Gone{{1, true}}));
  EXPECT_EQ(add(order, chunk_of(0)), (Gone{{0, false}, {2, false}, {3, false}}));
}

TEST(LooseOrder, NothingPassesAFailure) {
  LooseOrder order(10, [](uint64_t) { return true; });
  Chunk failed = chunk_of(2);
  failed.failure = std::make_shared<const Error>(Code::io, "bad");
  EXPECT_EQ(add(order, std::move(failed)), Gone{});
  EXPECT_EQ(add(order, chunk_of(3)), Gone{});
  EXPECT_EQ(add(order, chunk_of(1)), (Gone{{1, true}}));
  EXPECT_EQ(add(order, chunk_of(0)), (Gone{{0, false}, {2, false}, {3, false}}));
}

TEST(LooseOrder, IsStrictWhereItMustBe) {
  bool may = false;
  LooseOrder order(10, [&](uint64_t) { return may; });
  EXPECT_EQ(add(order, chunk_of(1)), Gone{});
  EXPECT_EQ(add(order, chunk_of(0)), (Gone{{0, false}, {1, false}}));
  EXPECT_EQ(add(order, chunk_of(3)), Gone{});
  may = true;
  EXPECT_EQ(add(order, chunk_of(4)), (Gone{{3, true}, {4, true}}));
}

// In whatever order chunks arrive, each is released once, and none is overtaken by chunks beyond
// the window.
TEST(LooseOrder, KeepsItsBoundInAnyOrder) {
  std::mt19937 random(3);
  for (const uint64_t window : {1, 5, 40}) {
    LooseOrder order(window, [](uint64_t) { return true; });
    std::vector<uint64_t> waiting, gone;
    for (uint64_t next = 0; gone.size() < 500;) {
      while (waiting.size() < 30 && next < 500) waiting.push_back(next++);
      std::swap(waiting[random() % waiting.size()], waiting.back());
      const Gone now = add(order, chunk_of(waiting.back()));
      waiting.pop_back();
      for (const auto& [sequence, early] : now) {
        const auto left = [&](uint64_t s) { return std::ranges::find(gone, s) == gone.end(); };
        bool is_first = true;
        for (uint64_t s = sequence > window ? sequence - window : 0; s < sequence; ++s)
          is_first = is_first && !left(s);
        EXPECT_EQ(early, !is_first);
        for (uint64_t s = 0; s + window < sequence; ++s) EXPECT_FALSE(left(s)) << s;
        gone.push_back(sequence);
      }
    }
    std::ranges::sort(gone);
    for (uint64_t s = 0; s < 500; ++s) ASSERT_EQ(gone[s], s);
  }
}

}  // namespace
}  // namespace etr::test
