#include "server/roster.h"

#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <vector>

#include "server/cluster.h"

namespace etr::test {
namespace {

// When a run is resumed, the worker that has the checkpoint begins, even if another one joins
// first.
TEST(RosterTest, WhoHasNothingToBeginWithWaits) {
  server::Roster roster(sgd());
  server::Roster::Guest a(roster), b(roster);
  const auto second = roster.join(a, 1), first = roster.join(b, 0);
  using Beginning = server::Roster::Beginning;
  EXPECT_EQ(roster.wait_beginning(second, 0.01, /*can_begin=*/false), Beginning::not_yet);
  EXPECT_EQ(roster.wait_beginning(first, kTimeout), Beginning::yours);
  roster.begun(first);
  EXPECT_EQ(roster.wait_beginning(second, kTimeout, /*can_begin=*/false), Beginning::there);
}

TEST(RosterTest, OfThoseWhoFinishAtTheSameTimeOneIsTheLast) {
  for (int round = 0; round < 200; ++round) {
    server::Roster roster(sgd());
    constexpr int kWorkers = 4;
    std::vector<server::Roster::Ticket> tickets;
    for (int i = 0; i < kWorkers; ++i) {
      server::Roster::Guest guest(roster);
      tickets.push_back(roster.join(guest, i, kWorkers));
    }
    std::latch together(kWorkers);
    std::vector<std::future<bool>> last;
    for (const auto ticket : tickets)
      last.push_back(std::async(std::launch::async, [&, ticket] {
        together.arrive_and_wait();
        return roster.finish(ticket);
      }));
    int count = 0;
    for (auto& one : last) count += one.get();
    ASSERT_EQ(count, 1);
    ASSERT_TRUE(roster.over());
  }
}

}  // namespace
}  // namespace etr::test
