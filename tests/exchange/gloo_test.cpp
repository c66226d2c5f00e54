// Groups of processes on Gloo.
#include <gtest/gtest.h>

#include <chrono>

#include "exchange/conformance.h"
#include "exchange/ranks.h"

namespace etr::test {
namespace {

using exchange::Group;
using exchange::open_group;
using exchange::RankLost;
using exchange::World;

TEST(Gloo, DoesEveryOperation) {
  for (const int size : {2, 3}) {
    Ranks ranks(size, [](const World& world) {
      Group group = open_group(world);
      return every_operation(group);
    });
    for (int r = 0; r < size; ++r) EXPECT_EQ(ranks.outcome(r), "");
  }
}

}  // namespace
}  // namespace etr::test
