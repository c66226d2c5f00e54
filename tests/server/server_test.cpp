// Shards and workers as threads of one process.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <numeric>
#include <thread>

#include "core/error.h"
#include "server/cluster.h"
#include "server/message.h"
#include "support/eventually.h"

namespace etr::test {
namespace {

using Is = Pair::Ready::Is;

std::vector<float> numbers(size_t count, float from = 0) {
  std::vector<float> out(count);
  std::iota(out.begin(), out.end(), from);
  return out;
}

void push(Client& client, const std::vector<float>& gradient, float rate) {
  client.exchange(
      [&](Pair& pair) {
        const server::Slice slice = pair.slice(gradient.size());
        pair.push(std::span(gradient).subspan(slice.begin, slice.count), rate);
      },
      {});
  client.wait();
}

std::vector<float> fetched(Client& client, size_t count) {
  std::vector<float> out(count);
  client.exchange({}, [&](Pair& pair) {
    const server::Slice slice = pair.slice(count);
    pair.fetch(std::span(out).subspan(slice.begin, slice.count));
  });
  client.wait();
  return out;
}

std::vector<float> begun(Client& client, std::vector<float> weights) {
  client.begin({.weights = weights});
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
  perform(*first, [](Pair& pair) { EXPECT_EQ(pair.ready().is, Is::yours); });
  auto second = cluster.join();
  auto begins = std::async(std::launch::async, [&] { return begun(*second, numbers(10, 50)); });
  first.reset();
  EXPECT_EQ(begins.get(), numbers(10, 50));
}

// The first one has the checkpoint.
TEST(ParameterServer, WhoWaitsForTheFirstWorkerWaitsOnlySoLong) {
  Cluster cluster(2, sgd(), 4, 4);
  auto first = cluster.join(0), other = cluster.join(1);
  std::vector<float> weights{1, 2, 3};
  auto waits = std::async(std::launch::async, [&]() -> std::string {
    try {
      other->begin({.weights = weights, .waits = true});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  });
  EXPECT_EQ(waits.wait_for(std::chrono::seconds(5)), std::future_status::timeout)
      << "while the first one is here";
  first.reset();
  ASSERT_EQ(waits.wait_for(std::chrono::seconds(60)), std::future_status::ready);
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
  worker->begin({.weights = kept, .state = state});
  push(*worker, gradients[2], 0.25f), apply(gradients[2]);
  check(*worker);
}

TEST(ParameterServer, DecaysTheLeadingWeights) {
  ShardOptions options = sgd();
  options.weight_decay = 0.5f;
  Cluster cluster(2, options);
  auto worker = cluster.join();
  std::vector<float> weights{4, 4, 4, 4};
  worker->begin({.weights = weights, .decayed = 3});
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
  for (size_t shard = 0; shard < 2; ++shard) EXPECT_EQ(cluster[shard].status().roster.pushes, 11u);
}

// The weights count the updates that were applied: whole ones, and all that were acknowledged.
TEST(ParameterServer, AnAcknowledgedUpdateIsAppliedWheneverItsWorkerDies) {
  Cluster cluster(1, sgd());
  auto watcher = cluster.join();
  begun(*watcher, {0, 0});
  const std::vector<float> one{-1, -1};
  std::atomic<uint64_t> acknowledged{0};
  constexpr uint64_t kVictims = 24;
  for (uint64_t i = 0; i < kVictims; ++i) {
    auto victim = cluster.join();
    begun(*victim, {0, 0});
    for (uint64_t n = 0; n < i % 4; ++n) push(*victim, one, 1), ++acknowledged;
    victim->start([&](Pair& pair) { pair.push(one, 1), ++acknowledged; });
    if (i % 2) victim->wait(0.001);
    victim.reset();  // with a push under way, or just after
  }
  while (cluster[0].status().roster.workers > 1) std::this_thread::yield();
  const uint64_t applied = cluster[0].status().roster.pushes;
  EXPECT_GE(applied, acknowledged);
  EXPECT_LE(applied, acknowledged + kVictims);
  EXPECT_EQ(fetched(*watcher, 2), std::vector<float>(2, static_cast<float>(applied)));
}

// Whether a worker's turn comes only when another one has done something: it waits, and goes on
// then.
class Turn {
 public:
  explicit Turn(Client& client) : client_(client) {
    client_.exchange({}, [](Pair& pair) {
      if (pair.leads()) pair.gate();
    });
  }
  // The servers answer others in the meantime: two round trips of another worker show that this one
  // has not been let through.
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
  EXPECT_EQ(cluster[0].status().roster.pushes, 50u);
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
  EXPECT_EQ(cluster[0].status().roster.pushes, 1u);
}

TEST(ParameterServer, NumbersOfTheDeadAreGivenAgain) {
  Cluster cluster(1, sgd());
  auto a = cluster.join(), b = cluster.join(5), c = cluster.join();
  EXPECT_EQ(a->number(), 0);
  EXPECT_EQ(b->number(), 5);
  EXPECT_EQ(c->number(), 1);
  a.reset();
  while (cluster[0].status().roster.workers == 3) std::this_thread::yield();
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

TEST(ParameterServer, OtherShardsAreToldWhyAWorkerGaveUp) {
  Log log;
  Cluster cluster(2, sgd());
  auto worker = cluster.join();
  begun(*worker, numbers(8));
  cluster.kill(1);
  while (problem_of([&] { push(*worker, numbers(8), 0.1f); }).empty()) {
  }
  EXPECT_TRUE(eventually([&] {
    return log.has("rank 1 ended the group: parameter server: shard 1 of 2 is lost");
  })) << log.text();
}

TEST(ParameterServer, AShardThatRefusesIsNotToldOfAnotherOne) {
  Log log;
  Cluster cluster(1, sgd());
  auto first = cluster.join(), other = cluster.join();
  begun(*first, numbers(10));
  EXPECT_NE(problem_of([&] { begun(*other, numbers(31)); }), "");
  EXPECT_TRUE(eventually([&] {
    return log.has("rank 1 ended the group: parameter server: shard 0 of 1 refuses");
  })) << log.text();
}

// Objects that the work uses may be destroyed as soon as it has failed.
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
  Cluster cluster(1, sgd(), 6, 6);
  auto worker = cluster.join();
  begun(*worker, numbers(4));
  std::this_thread::sleep_for(std::chrono::milliseconds(6500));
  push(*worker, numbers(4), 0.1f);
  EXPECT_EQ(cluster[0].status().roster.workers, 1u);
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

// The one began first, in the first shard's eyes; the other is the first one at the second shard.
TEST(ParameterServer, TheFirstShardSaysWhoWarmsUp) {
  ShardOptions options = sgd();
  options.warm_start = 2;
  Cluster cluster(2, options);
  auto first = cluster.join(), second = cluster.join();
  const auto fetch_of = [](int shard) {
    return [shard](Pair& pair) {
      std::vector<float> weights(2);
      if (pair.shard() == shard) pair.fetch(weights);
    };
  };
  begun(*first, numbers(4));
  first->leave();
  auto third = cluster.join();
  perform(*second, [](Pair& pair) { EXPECT_TRUE(!pair.leads() || pair.ready().is == Is::there); });
  perform(*second, fetch_of(1));
  perform(*third, fetch_of(0));
  EXPECT_EQ(begun(*third, numbers(4)), numbers(4));
  auto begins = std::async(std::launch::async, [&] { return begun(*second, numbers(4)); });
  for (int i = 0; i < 2; ++i) push(*third, {1, 1, 1, 1}, 1);
  EXPECT_EQ(begins.get(), (std::vector<float>{-2, -1, 0, 1})) << "after both pushes";
}

// Many at once: whoever begins, none waits for who waits for it.
TEST(ParameterServer, WorkersThatBeginAtOnceWarmUpAllTheSame) {
  ShardOptions options = sgd();
  options.warm_start = 3;
  options.delay = 0;
  for (int round = 0; round < 5; ++round) {
    Cluster cluster(3, options);
    std::vector<std::future<void>> workers;
    for (int i = 0; i < 3; ++i)
      workers.push_back(std::async(std::launch::async, [&] {
        auto worker = cluster.join(-1, 3);
        begun(*worker, numbers(9));
        for (int n = 0; n < 5; ++n) {
          push(*worker, numbers(9), 0.1f);
          fetched(*worker, 9);
        }
        worker->leave();
      }));
    for (auto& worker : workers) worker.get();
    EXPECT_EQ(cluster[0].status().roster.pushes, 15u);
  }
}

// In order: all shards have applied what the first one has counted.
TEST(ParameterServer, APushIsCountedWhenAllShardsHaveIt) {
  ShardOptions options = sgd();
  options.delay = 0;
  Cluster cluster(3, options);
  auto worker = cluster.join();
  begun(*worker, numbers(9));
  std::atomic<int> others{0};
  worker->exchange(
      [&](Pair& pair) {
        if (pair.leads())
          EXPECT_EQ(others.load(), 2);
        else
          ++others;
      },
      [&](Pair& pair) {
        if (!pair.leads())
          ++others;
        else
          EXPECT_EQ(others.load(), 2);
      });
  worker->wait();
  EXPECT_EQ(others.load(), 4);
}

TEST(ParameterServer, AWorkerThatIsJoiningKeepsTheOthersFromEnding) {
  Cluster cluster(2, sgd());
  auto first = cluster.join();
  begun(*first, numbers(4));
  // The first one leaves when the second one is known to the first shard, and not to the other one.
  auto second = cluster.join({}, [&](int shard) {
    if (shard != 1) return;
    first->leave();
    first.reset();
    EXPECT_FALSE(cluster[0].wait(0.01));
    EXPECT_FALSE(cluster[1].wait(0.01));
  });
  EXPECT_EQ(begun(*second, numbers(4, 7)), numbers(4));
  second->leave();
  for (size_t shard = 0; shard < 2; ++shard) EXPECT_TRUE(cluster[shard].wait(kTimeout)) << shard;
  EXPECT_NE(problem_of([&] { cluster.join(); }).find("the run is over"), std::string::npos);
}

// Not before: it would meet nobody.
TEST(ParameterServer, IsOverWhenAllWhoWereToComeHaveFinished) {
  Cluster cluster(2, sgd());
  auto first = cluster.join(0, 2);
  begun(*first, numbers(4));
  first->leave();
  first.reset();
  EXPECT_FALSE(cluster[0].wait(0.05));
  EXPECT_FALSE(cluster[1].wait(0.05));
  auto second = cluster.join(1, 2);
  EXPECT_EQ(begun(*second, numbers(4, 7)), numbers(4));
  second->leave();
  for (size_t shard = 0; shard < 2; ++shard) EXPECT_TRUE(cluster[shard].wait(kTimeout)) << shard;
}

TEST(ParameterServer, WaitsForThoseWhoAreToComeOnlySoLong) {
  Cluster cluster(2, sgd(), 0.5);
  auto first = cluster.join(0, 2);
  begun(*first, numbers(4));
  first->leave();
  first.reset();
  for (size_t shard = 0; shard < 2; ++shard) EXPECT_TRUE(cluster[shard].wait(kTimeout)) << shard;
}

// Nobody will ever begin.
TEST(ParameterServer, WhoWaitsForTheFirstWorkerEndsWithIt) {
  Cluster cluster(2, sgd());
  auto other = cluster.join(1);
  std::vector<float> weights{1, 2, 3};
  auto begins = std::async(std::launch::async,
                           [&] { return other->begin({.weights = weights, .waits = true}); });
  auto first = cluster.join(0, 2);
  first->leave(/*all_end=*/true);
  EXPECT_FALSE(begins.get());
  EXPECT_TRUE(other->told_to_end());
  other->leave();
  for (size_t shard = 0; shard < 2; ++shard) EXPECT_TRUE(cluster[shard].wait(kTimeout)) << shard;
}

// Where others are waited for: within a moment, and the worker leaves in order.
TEST(ParameterServer, AStopEndsWaiting) {
  std::atomic<bool> stop{false};
  {
    Cluster cluster(2, sgd());
    auto first = cluster.join(), second = cluster.join();
    second->heed(stop);
    perform(*first, [](Pair& pair) { EXPECT_TRUE(!pair.leads() || pair.ready().is == Is::yours); });
    auto begins = std::async(std::launch::async, [&] { begun(*second, numbers(4)); });
    EXPECT_NE(begins.wait_for(std::chrono::milliseconds(20)), std::future_status::ready);
    stop = true;
    EXPECT_THROW(begins.get(), Error);
    second->leave();
    EXPECT_EQ(cluster[0].status().roster.finished, 1u);
  }
  stop = false;
  ShardOptions options = sgd();
  options.delay = 0;
  Cluster cluster(2, options);
  auto fast = cluster.join(), slow = cluster.join();
  fast->heed(stop);
  begun(*fast, numbers(4));
  begun(*slow, numbers(4));
  push(*fast, numbers(4), 0.1f);
  Turn turn(*fast);
  EXPECT_TRUE(turn.waits(*slow));
  stop = true;
  turn.passes();
  push(*fast, numbers(4), 0.1f);  // as before
  fast->leave();
}

TEST(ParameterServer, TermsThatDifferAreNamed) {
  ShardOptions adagrad, other = sgd();
  adagrad.terms = "parallel.algorithm \"downpour\"\nparallel.server_optimizer \"adagrad\"\n";
  other.terms = "parallel.algorithm \"downpour\"\nparallel.server_optimizer \"sgd\"\n";
  server::Place place;
  place.shards = 2;
  server::Server first(adagrad, place);
  place.shard = 1;
  server::Server second(other, place);
  const auto join = [&](const std::string& terms) {
    const auto meet = [&](int shard) {
      auto pair = exchange::local_groups(2, kTimeout);
      (shard == 0 ? first : second).add(std::move(pair[0]));
      return std::move(pair[1]);
    };
    return problem_of([&] { Client(2, meet, {.number = 3, .terms = terms}); });
  };
  std::string problem = join(adagrad.terms);
  EXPECT_NE(problem.find("worker 3 has parallel.server_optimizer \"adagrad\", and shard 1 \"sgd\""),
            std::string::npos)
      << problem;
  problem = join("parallel.algorithm \"easgd\"\n");
  EXPECT_NE(problem.find("worker 3 has parallel.algorithm \"easgd\", and shard 0 \"downpour\""),
            std::string::npos)
      << problem;
}

// Sizes that a message claims are looked at before memory is taken for them.
TEST(ParameterServer, AMessageThatIsDamagedEndsItsPairAlone) {
  Cluster cluster(1, sgd());
  auto worker = cluster.join();
  begun(*worker, numbers(4));
  const auto send = [&](const server::Message& message) {
    auto damaged = exchange::local_groups(2, kTimeout);
    cluster[0].add(std::move(damaged[0]));
    server::Message hello;
    hello.kind = server::Kind::hello;
    hello.count = 1;
    server::send(damaged[1], server::kShardRank, server::kRequestTag, hello);
    server::receive(damaged[1], server::kShardRank, server::kAnswerTag);
    server::send(damaged[1], server::kShardRank, server::kRequestTag, message);
    return problem_of([&] { server::receive(damaged[1], server::kShardRank, server::kAnswerTag); });
  };
  constexpr uint64_t kHuge = uint64_t{1} << 60;
  server::Message message;
  message.kind = server::Kind::check;
  message.words = kHuge;
  EXPECT_NE(send(message).find("sparse tables"), std::string::npos);
  message.kind = server::Kind::begin;
  message.count = kHuge;
  EXPECT_NE(send(message).find("parameters"), std::string::npos);
  message.kind = server::Kind::rows;
  EXPECT_NE(send(message).find("ids of rows"), std::string::npos);
  push(*worker, numbers(4), 0.1f);
}

}  // namespace
}  // namespace etr::test
