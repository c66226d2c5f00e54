// Shards and workers as threads of one process.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <future>
#include <numeric>

#include "core/error.h"
#include "exchange/store.h"
#include "server/cluster.h"
#include "server/door.h"
#include "server/message.h"
#include "support/temp_dir.h"

namespace etr::test {
namespace {

using server::Shard;

std::vector<float> numbers(size_t count, float from = 0) {
  std::vector<float> out(count);
  std::iota(out.begin(), out.end(), from);
  return out;
}

void push(Client& client, const std::vector<float>& gradient, float rate) {
  perform(client, [&](Pair& pair) {
    const server::Slice slice = pair.slice(gradient.size());
    pair.push(std::span(gradient).subspan(slice.begin, slice.count), rate);
  });
}

std::vector<float> fetched(Client& client, size_t count) {
  std::vector<float> out(count);
  perform(client, [&](Pair& pair) {
    const server::Slice slice = pair.slice(count);
    pair.fetch(std::span(out).subspan(slice.begin, slice.count));
  });
  return out;
}

std::vector<float> begun(Client& client, std::vector<float> weights) {
  client.begin(weights, {}, 0);
  return weights;
}

TEST(SliceTest, SlicesCoverAllParametersOnce) {
  for (const uint64_t count : {0u, 1u, 7u, 100u, 12345u})
    for (const int shards : {1, 2, 3, 7}) {
      uint64_t next = 0;
      for (int i = 0; i < shards; ++i) {
        const server::Slice slice = server::slice_of(count, i, shards);
        EXPECT_EQ(slice.begin, next);
        EXPECT_LE(slice.count, count / static_cast<uint64_t>(shards) + 1);
        next += slice.count;
      }
      EXPECT_EQ(next, count);
    }
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

TEST(ParameterServer, TheFirstWorkerSaysWhatToBeginWith) {
  for (const int shards : {1, 3}) {
    Cluster cluster(shards, sgd());
    auto first = cluster.join();
    EXPECT_EQ(begun(*first, numbers(10, 5)), numbers(10, 5));
    auto second = cluster.join();
    EXPECT_EQ(first->number(), 0);
    EXPECT_EQ(second->number(), 1);
    EXPECT_EQ(begun(*second, numbers(10, 50)), numbers(10, 5));
    auto other = cluster.join();
    EXPECT_THROW(begun(*other, numbers(31)), Error) << "another model";
  }
}

TEST(ParameterServer, WhoWasToBeginAndIsGoneIsReplaced) {
  Cluster cluster(1, sgd());
  auto first = cluster.join();
  perform(*first, [](Pair& pair) { EXPECT_FALSE(pair.ready(10)); });
  auto second = cluster.join();
  auto begins = std::async(std::launch::async, [&] { return begun(*second, numbers(10, 50)); });
  first.reset();
  EXPECT_EQ(begins.get(), numbers(10, 50));
}

// The first one has the checkpoint.
TEST(ParameterServer, WhoWaitsForTheFirstWorkerWaitsOnlySoLong) {
  Cluster cluster(2, sgd(), 0.5);
  auto first = cluster.join(0), other = cluster.join(1);
  std::vector<float> weights{1, 2, 3};
  auto waits = std::async(std::launch::async, [&]() -> std::string {
    try {
      other->begin(weights, {}, 0, {}, /*waits=*/true);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  });
  EXPECT_EQ(waits.wait_for(std::chrono::seconds(2)), std::future_status::timeout)
      << "while the first one is here";
  first.reset();
  ASSERT_EQ(waits.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_NE(waits.get().find("the first worker (number 0)"), std::string::npos);
}

TEST(ParameterServer, AppliesSgdWithMomentum) {
  Cluster cluster(2, sgd(0.5f));
  auto worker = cluster.join();
  begun(*worker, {1, 2, 3});
  push(*worker, {1, 1, 2}, 0.5f);
  push(*worker, {1, 0, 2}, 0.5f);
  EXPECT_EQ(fetched(*worker, 3), (std::vector<float>{-0.25f, 1.25f, 0.5f}));
}

// As Dean et al.: the rate over the root of the sum of squares; the sums go to another server.
TEST(ParameterServer, AppliesAdagradAndHandsOnItsState) {
  std::vector<double> weights{1, 2, 3}, sums(3);
  const std::vector<std::vector<float>> gradients{{1, 2, 3}, {0.5f, -1, 0.1f}, {2, 0, -3}};
  const auto apply = [&](const std::vector<float>& gradient) {
    for (size_t i = 0; i < 3; ++i) {
      const double g = static_cast<double>(gradient[i]);
      sums[i] += g * g;
      weights[i] -= 0.25 * g / std::sqrt(sums[i]);
    }
  };
  const auto check = [&](Client& worker) {
    const auto is = fetched(worker, 3);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(is[i], weights[i], 1e-6) << i;
  };
  std::vector<float> kept(3), state(3);
  {
    Cluster cluster(2);
    auto worker = cluster.join();
    begun(*worker, {1, 2, 3});
    for (size_t i = 0; i < 2; ++i) push(*worker, gradients[i], 0.25f), apply(gradients[i]);
    check(*worker);
    perform(*worker, [&](Pair& pair) {
      const server::Slice slice = pair.slice(3);
      pair.state(std::span(kept).subspan(slice.begin, slice.count),
                 std::span(state).subspan(slice.begin, slice.count));
    });
  }
  Cluster again(3);
  auto worker = again.join();
  worker->begin(kept, state, 0);
  push(*worker, gradients[2], 0.25f), apply(gradients[2]);
  check(*worker);
}

TEST(ParameterServer, DecaysTheLeadingWeights) {
  ShardOptions options = sgd();
  options.weight_decay = 0.5f;
  Cluster cluster(2, options);
  auto worker = cluster.join();
  std::vector<float> weights{4, 4, 4, 4};
  worker->begin(weights, {}, 3);
  push(*worker, {0, 0, 0, 0}, 0.5f);
  EXPECT_EQ(fetched(*worker, 4), (std::vector<float>{3, 3, 3, 4}));
}

TEST(ParameterServer, CountsWhatItHasApplied) {
  Cluster cluster(2, sgd());
  auto a = cluster.join(), b = cluster.join();
  begun(*a, numbers(5));
  begun(*b, numbers(5));
  for (int i = 0; i < 7; ++i) push(*a, numbers(5), 0.1f);
  for (int i = 0; i < 4; ++i) push(*b, numbers(5), 0.1f);
  EXPECT_EQ(a->acknowledged(), 7u);
  EXPECT_EQ(b->acknowledged(), 4u);
  for (size_t shard = 0; shard < 2; ++shard) EXPECT_EQ(cluster[shard].status().applied, 11u);
}

// The weights count the updates that were applied: whole ones, and all that were acknowledged.
TEST(ParameterServer, AnAcknowledgedUpdateIsAppliedWheneverItsWorkerDies) {
  Cluster cluster(1, sgd());
  auto watcher = cluster.join();
  begun(*watcher, {0, 0});
  const std::vector<float> one{-1, -1};
  uint64_t acknowledged = 0;
  constexpr uint64_t kVictims = 24;
  for (uint64_t i = 0; i < kVictims; ++i) {
    auto victim = cluster.join();
    begun(*victim, {0, 0});
    for (uint64_t n = 0; n < i % 4; ++n) push(*victim, one, 1);
    victim->start([&](Pair& pair) { pair.push(one, 1); });
    if (i % 2) victim->wait(0.001);
    acknowledged += victim->acknowledged();
    victim.reset();  // with a push under way, or just after
  }
  while (cluster[0].status().workers > 1) std::this_thread::yield();
  const uint64_t applied = cluster[0].status().applied;
  EXPECT_GE(applied, acknowledged);
  EXPECT_LE(applied, acknowledged + kVictims);
  EXPECT_EQ(fetched(*watcher, 2), std::vector<float>(2, static_cast<float>(applied)));
}

// Whether a worker's turn comes only when another one has done something: it waits, and goes on then.
class Turn {
 public:
  explicit Turn(Client& client) : client_(client) {
    client_.start([](Pair& pair) { pair.gate(); });
  }
  // The servers answer others in the meantime: two round trips of another worker show that this one has not been let through.
  bool waits(Client& other) {
    for (int i = 0; i < 2; ++i) perform(other, [](Pair& pair) { pair.here(); });
    return !client_.idle();
  }
  void passes() { client_.wait(); }

 private:
  Client& client_;
};

TEST(ParameterServer, BoundsTheDelay) {
  for (const uint64_t delay : {0u, 1u, 3u}) {
    ShardOptions options = sgd();
    options.delay = delay;
    Cluster cluster(2, options);
    auto fast = cluster.join(), slow = cluster.join(), watcher = cluster.join();
    begun(*fast, numbers(4));
    begun(*slow, numbers(4));
    for (uint64_t ahead = 0; ahead <= delay; ++ahead) {
      Turn(*fast).passes();
      push(*fast, numbers(4), 0.1f);
    }
    Turn turn(*fast);
    EXPECT_TRUE(turn.waits(*watcher)) << delay;
    push(*slow, numbers(4), 0.1f);
    turn.passes();
    push(*fast, numbers(4), 0.1f);
    Turn again(*fast);
    EXPECT_TRUE(again.waits(*watcher)) << delay;
    slow.reset();  // as killed: nobody waits for the dead
    again.passes();
  }
}

TEST(ParameterServer, EventuallyMeansWithoutWaiting) {
  Cluster cluster(1, sgd());
  auto fast = cluster.join(), slow = cluster.join();
  begun(*fast, numbers(4));
  begun(*slow, numbers(4));
  for (int i = 0; i < 50; ++i) {
    push(*fast, numbers(4), 0.1f);
    Turn(*fast).passes();
  }
  EXPECT_EQ(cluster[0].status().applied, 50u);
}

TEST(ParameterServer, WarmsUpWithOneWorker) {
  ShardOptions options = sgd();
  options.warm_start = 3;
  Cluster cluster(2, options);
  auto first = cluster.join(), second = cluster.join();
  begun(*first, numbers(4));
  auto begins = std::async(std::launch::async, [&] { return begun(*second, numbers(4)); });
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(begins.wait_for(std::chrono::seconds(0)), std::future_status::ready) << i;
    push(*first, {1, 1, 1, 1}, 1);
  }
  EXPECT_EQ(begins.get(), (std::vector<float>{-3, -2, -1, 0})) << "after three updates";
}

TEST(ParameterServer, AveragesElastically) {
  Cluster cluster(2, sgd());
  auto worker = cluster.join();
  begun(*worker, {0, 0, 0});
  const std::vector<float> own{4, 8, -4};
  std::vector<float> centre(3);
  perform(*worker, [&](Pair& pair) {
    const server::Slice slice = pair.slice(3);
    pair.average(std::span(own).subspan(slice.begin, slice.count), 0.25f,
                 std::span(centre).subspan(slice.begin, slice.count));
  });
  EXPECT_EQ(centre, (std::vector<float>{0, 0, 0})) << "as it was";
  EXPECT_EQ(fetched(*worker, 3), (std::vector<float>{1, 2, -1}));
  EXPECT_EQ(worker->acknowledged(), 1u);
}

TEST(ParameterServer, NumbersOfTheDeadAreGivenAgain) {
  Cluster cluster(1, sgd());
  auto a = cluster.join(), b = cluster.join(5), c = cluster.join();
  EXPECT_EQ(a->number(), 0);
  EXPECT_EQ(b->number(), 5);
  EXPECT_EQ(c->number(), 1);
  a.reset();
  while (cluster[0].status().workers == 3) std::this_thread::yield();
  EXPECT_EQ(cluster.join()->number(), 0);
}

TEST(ParameterServer, ALostShardIsNamed) {
  Cluster cluster(3, sgd());
  auto worker = cluster.join();
  begun(*worker, numbers(9));
  cluster.kill(1);
  try {
    while (true) push(*worker, numbers(9), 0.1f);
  } catch (const exchange::RankLost& lost) {
    EXPECT_NE(std::string(lost.what()).find("shard 1 of 3 is lost"), std::string::npos)
        << lost.what();
    EXPECT_EQ(lost.missing(), std::vector<int>{1});
  }
}

// What the work uses may go when it has failed.
TEST(ParameterServer, AFailureIsToldWhenNoThreadIsAtWorkAnyMore) {
  Cluster cluster(3, sgd());
  auto worker = cluster.join();
  begun(*worker, numbers(9));
  std::promise<void> at_work, go_on;
  std::atomic<bool> is_done{false};
  worker->start([&](Pair& pair) {
    if (pair.shard() == 0) {
      at_work.get_future().wait();
      throw exchange::RankLost("the test says so", {0});
    }
    if (pair.shard() != 1) return;
    at_work.set_value();
    go_on.get_future().wait();
    is_done = true;
  });
  auto told = std::async(std::launch::async, [&] {
    EXPECT_THROW(worker->wait(), exchange::RankLost);
    return is_done.load();
  });
  told.wait_for(std::chrono::milliseconds(20));  // in which it might be told
  go_on.set_value();
  EXPECT_TRUE(told.get()) << "while a thread was at work";
  EXPECT_THROW(worker->idle(), exchange::RankLost);
}

// Which ends a worker that has nothing to exchange, too, and those that wait for others.
TEST(ParameterServer, ALostShardEndsWaiting) {
  ShardOptions options = sgd();
  options.delay = 0;
  Cluster cluster(2, options);
  auto fast = cluster.join(), slow = cluster.join();
  begun(*fast, numbers(4));
  begun(*slow, numbers(4));
  push(*fast, numbers(4), 0.1f);
  Turn turn(*fast);
  EXPECT_TRUE(turn.waits(*slow));
  cluster.kill(0);
  EXPECT_THROW(turn.passes(), exchange::RankLost);
}

// Longer than the time-out, in which it says that it is there.
TEST(ParameterServer, ASlowWorkerIsNotALostOne) {
  Cluster cluster(1, sgd(), 3);
  auto worker = cluster.join();
  begun(*worker, numbers(4));
  std::this_thread::sleep_for(std::chrono::milliseconds(3500));
  push(*worker, numbers(4), 0.1f);
  EXPECT_EQ(cluster[0].status().workers, 1u);
}

TEST(ParameterServer, IsOverWhenTheLastWorkerHasFinished) {
  Cluster cluster(1, sgd());
  auto first = cluster.join(), second = cluster.join();
  begun(*first, numbers(4));
  begun(*second, numbers(4));
  first->leave();
  first.reset();
  EXPECT_FALSE(cluster[0].wait(0.01));
  second->leave();
  EXPECT_TRUE(cluster[0].wait(kTimeout));
}

TEST(ParameterServer, WaitsForAnotherWorkerOnlySoLong) {
  Cluster cluster(1, sgd(), 0.5);
  EXPECT_THROW(cluster[0].wait(kTimeout), exchange::RankLost) << "no worker came";
  Cluster left(1, sgd(), 2);
  begun(*left.join(), numbers(4));
  EXPECT_THROW(left[0].wait(kTimeout), exchange::RankLost) << "the last one was lost";
}

}  // namespace
}  // namespace etr::test
