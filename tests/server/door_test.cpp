// Where workers find shards, and shards their places.
#include "server/door.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "exchange/store.h"
#include "server/cluster.h"
#include "support/child.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

namespace etr::test {
namespace {

exchange::World world_in(const TempDir& dir, double timeout = kTimeout) {
  exchange::World world;
  world.rendezvous = "file:" + dir.path();
  world.timeout_s = timeout;
  return world;
}

// A worker that is answered between two looks of its own knocks once more; nobody is to wait for it
// twice.
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

// The one that comes later finds the other's claim where that of a dead server was: the second,
// unless the first was held up.
TEST(DoorTest, OfTwoThatFindADeadServersPlaceOneHasIt) {
  const TempDir dir;
  server::Door dead(world_in(dir), 0, true);
  dead.claim();
  std::atomic<int> claimed{0};
  const auto problem_of_claim = [&] {
    server::Door door(world_in(dir, 8), 0, true);
    const std::string problem = problem_of([&] { door.claim(); });
    ++claimed;
    if (!problem.empty()) return problem;
    return problem_of([&] {
      while (claimed < 2) door.answer();
    });
  };
  auto first = std::async(std::launch::async, problem_of_claim);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const std::string second = problem_of_claim(), other = first.get();
  EXPECT_NE(second.empty(), other.empty()) << second << other;
  const std::string told = second + other;
  EXPECT_TRUE(told.find("is served by process ") != std::string::npos ||
              told.find("is no longer this process's: ") != std::string::npos)
      << told;
}

// The workers that are here go on, so the server does, too.
TEST(ServerTest, SaysThatNobodyElseCanJoin) {
  Log log;
  const TempDir dir;
  exchange::World world;
  world.rendezvous = "file:" + dir.path("meet");
  world.timeout_s = kTimeout;
  Server server(sgd(), server::Place{world, 0, 1});
  auto pair = exchange::local_groups(2, kTimeout);
  server.add(std::move(pair[0]));
  ASSERT_TRUE(eventually([&] {
    std::error_code ignored;  // the server writes into it
    std::filesystem::remove_all(dir.path("meet"), ignored);
    return std::ofstream(dir.path("meet")).is_open();  // a file instead of the folder
  }));
  EXPECT_TRUE(eventually([&] { return log.has("no more workers can join: "); })) << log.text();
  EXPECT_FALSE(server.wait(0));
}

TEST(ServerTest, AWorkerForWhichThereIsNoThreadIsRefusedAlone) {
  const TempDir dir;
  EXPECT_EQ(in_child([&dir] {
              Log log;
              const exchange::World world = world_in(dir);
              Server server(sgd(), server::Place{world, 0, 1});
              const auto store = exchange::file_store(dir.path());
              if (kSanitized) return 0;              // there is no limit
              if (!limit_memory(1 << 20)) return 1;  // less than a thread takes
              std::promise<void> over;
              const std::shared_future<void> ends = over.get_future();
              std::vector<std::thread> others;
              try {  // use up the stacks that threads of other tests have left
                while (true) others.emplace_back([ends] { ends.wait(); });
              } catch (const std::system_error&) {
              }
              for (const char* word : {"0123456789", "9876543210"}) {
                store->set(world.name + ".shard0.knock", word);
                const std::string answer = world.name + ".shard0." + word;
                if (!eventually([&] { return store->get(answer).has_value(); })) return 2;
              }
              const bool is_told =
                  eventually([&] { return log.has("did not: a thread that serves"); });
              over.set_value();
              for (std::thread& other : others) other.join();
              return is_told ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace etr::test
