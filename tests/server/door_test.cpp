// Where workers find shards, and shards their places.
#include "server/door.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "exchange/store.h"
#include "server/cluster.h"
#include "support/temp_dir.h"

namespace etr::test {
namespace {

exchange::World world_in(const TempDir& dir, double timeout = kTimeout) {
  exchange::World world;
  world.rendezvous = "file:" + dir.path();
  world.timeout_s = timeout;
  return world;
}

// A worker that is answered between two looks of its own knocks once more; nobody is to wait for it twice.
TEST(DoorTest, AWordIsAnsweredOnce) {
  const TempDir dir;
  exchange::World world;
  world.rendezvous = "file:" + dir.path();
  server::Door shard(world, 0, true);
  const auto store = exchange::file_store(dir.path());
  const std::string knock = world.name + ".shard0.knock";
  EXPECT_FALSE(shard.answer());
  store->set(knock, "0123456789");
  const auto pair = shard.answer();
  ASSERT_TRUE(pair);
  EXPECT_EQ(store->get(world.name + ".shard0.0123456789"), pair);
  store->remove(world.name + ".shard0.0123456789");
  store->set(knock, "0123456789");
  EXPECT_FALSE(shard.answer());
  EXPECT_FALSE(store->get(knock)) << "another one may knock";
  store->set(knock, "9876543210");
  const auto next = shard.answer();
  ASSERT_TRUE(next);
  EXPECT_NE(next, pair);
}

TEST(DoorTest, AShardIsServedOnce) {
  const TempDir dir;
  auto first = std::make_unique<Server>(sgd(), server::Place{world_in(dir), 0, 2});
  const std::string problem = problem_of([&] {
    Server again(sgd(), server::Place{world_in(dir), 0, 2});
  });
  EXPECT_NE(problem.find("shard 0 at 'file:"), std::string::npos) << problem;
  EXPECT_NE(problem.find("is served by process "), std::string::npos) << problem;
  EXPECT_EQ(problem_of([&] { Server other(sgd(), server::Place{world_in(dir), 1, 2}); }), "");
  first.reset();
  EXPECT_EQ(problem_of([&] { Server next(sgd(), server::Place{world_in(dir), 0, 2}); }), "");
}

// A server that was killed, or was frozen for so long; when it goes on it is told.
TEST(DoorTest, APlaceWhoseHolderDoesNotAnswerIsTaken) {
  const TempDir dir;
  server::Door frozen(world_in(dir), 0, true);
  frozen.claim();
  server::Door next(world_in(dir, 0.2), 0, true);
  next.claim();
  EXPECT_FALSE(next.answer());
  const std::string problem = problem_of([&] { frozen.answer(); });
  EXPECT_NE(problem.find("shard 0 at 'file:"), std::string::npos) << problem;
  EXPECT_TRUE(frozen.is_displaced());
  EXPECT_FALSE(next.is_displaced());
}

TEST(DoorTest, AShardOutlivesWhatIsDeletedInTheRendezvous) {
  for (const bool is_whole : {false, true}) {
    const TempDir dir;
    exchange::World world;
    world.rendezvous = "file:" + dir.path("meet");
    server::Door shard(world, 0, true);
    shard.claim();
    const std::string claim = dir.path("meet/" + world.name + ".shard0.claim");
    EXPECT_GT(std::filesystem::remove_all(is_whole ? dir.path("meet") : claim), 0u);
    EXPECT_EQ(problem_of([&] { EXPECT_FALSE(shard.answer()); }), "");
    EXPECT_FALSE(shard.is_displaced());
    EXPECT_TRUE(std::filesystem::exists(claim)) << "no other process is to take the place";
  }
}

// The one that comes later finds the other's claim where that of a dead server was: the second, unless the first was held up.
TEST(DoorTest, OfTwoThatFindADeadServersPlaceOneHasIt) {
  const TempDir dir;
  server::Door dead(world_in(dir), 0, true);
  dead.claim();
  std::atomic<int> claimed{0};
  const auto problem_of_claim = [&] {
    server::Door door(world_in(dir, 2), 0, true);
    const std::string problem = problem_of([&] { door.claim(); });
    ++claimed;
    while (problem.empty() && claimed < 2) door.answer();
    return problem;
  };
  auto first = std::async(std::launch::async, problem_of_claim);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const std::string second = problem_of_claim(), other = first.get();
  EXPECT_NE(second.empty(), other.empty()) << second << other;
  EXPECT_NE((second + other).find("is served by process "), std::string::npos) << second << other;
}

}  // namespace
}  // namespace etr::test
