// Tables of which workers fetch and push single rows.
#include "server/table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "core/error.h"
#include "core/rng.h"
#include "server/cluster.h"
#include "server/message.h"

namespace etr::test {
namespace {

using server::Rows;
using server::Table;
using server::Tables;
using server::TableSpec;

constexpr uint64_t kMany = uint64_t{1} << 31;

TableSpec spec(uint64_t entries, uint32_t width, float deviation = 0.5f) {
  return {entries, 7, 8, width, deviation};
}

// Rows with some values, for pushes.
Rows rows(std::vector<uint32_t> ids, std::vector<float> values) {
  return {std::move(ids), std::move(values), {}};
}

std::vector<float> fetched_rows(Client& client, const std::vector<uint32_t>& ids, uint32_t width) {
  std::vector<Rows> wanted{{ids, std::vector<float>(ids.size() * width), {}}};
  perform(client, [&](Pair& pair) { pair.fetch_rows(wanted); });
  return wanted[0].values;
}

void push_rows(Client& client, const Rows& gradient, float rate) {
  const std::vector<Rows> tables{gradient};
  perform(client, [&](Pair& pair) { pair.push({}, rate, tables); });
}

// The table as the servers have it.
TableSpec begin(Client& client, TableSpec table, const std::vector<Rows>& first = {}) {
  client.begin({.weights = {}, .tables = std::span(&table, 1), .rows = first});
  return table;
}

TEST(RngTest, SkippingIsDrawing) {
  for (const uint64_t draws : {0u, 1u, 3u, 4u, 5u, 1001u})
    for (const int before : {0, 1, 4, 6}) {
      Rng drawn(1, 2), skipped(1, 2);
      for (int i = 0; i < before; ++i) drawn.next_u32(), skipped.next_u32();
      for (uint64_t i = 0; i < draws; ++i) drawn.next_u32();
      skipped.skip(draws);
      for (int i = 0; i < 9; ++i) ASSERT_EQ(drawn.next_u32(), skipped.next_u32()) << draws;
    }
}

TEST(TableTest, RowsAreThoseOfAnArrayThatIsDrawnAsAWhole) {
  constexpr uint32_t kWidth = 3, kEntries = 50;
  std::vector<float> whole(kWidth * kEntries);
  Rng(7, 8).fill_normal(whole, 0.5f);
  Cluster cluster(3, sgd());
  auto worker = cluster.join();
  begin(*worker, spec(kEntries, kWidth));
  std::vector<uint32_t> ids(kEntries);
  for (uint32_t id = 0; id < kEntries; ++id) ids[id] = id;
  EXPECT_EQ(fetched_rows(*worker, ids, kWidth), whole);
  for (size_t shard = 0; shard < 3; ++shard) EXPECT_EQ(cluster[shard].status().rows, 0u);
}

TEST(TableTest, AppliesSgdAndAdagradToTheRowsThatArePushed) {
  for (const bool adagrad : {false, true}) {
    ShardOptions options = sgd();
    options.adagrad = adagrad;
    Cluster cluster(2, options);
    auto worker = cluster.join();
    begin(*worker, spec(kMany, 2));
    const std::vector<uint32_t> ids{3, 4, 2147483647};
    std::vector<float> expected = fetched_rows(*worker, ids, 2);
    std::vector<double> sums(6);
    for (const float g : {1.0f, -0.5f}) {
      push_rows(*worker, rows({3, 2147483647}, {g, 2 * g, 3 * g, 4 * g}), 0.25f);
      for (const size_t at : {0u, 1u, 4u, 5u}) {
        const double gradient =
            static_cast<double>(g) * static_cast<double>(at < 2 ? at + 1 : at - 1);
        sums[at] += gradient * gradient;
        expected[at] -= static_cast<float>(0.25 * gradient / (adagrad ? std::sqrt(sums[at]) : 1));
      }
    }
    const auto is = fetched_rows(*worker, ids, 2);
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(is[i], expected[i], 1e-6) << adagrad << " " << i;
    EXPECT_EQ(cluster[0].status().rows + cluster[1].status().rows, 2u);
  }
}

TEST(TableTest, HandsItsRowsOnToAnotherNumberOfShards) {
  Rows kept;
  std::vector<uint32_t> ids;
  std::vector<float> ones, before;
  for (uint32_t i = 0; i < 3000; ++i) ids.push_back(i * i + 5), ones.insert(ones.end(), 400, 0.1f);
  const TableSpec table = spec(kMany, 400);
  {
    Cluster cluster(2);
    auto worker = cluster.join();
    begin(*worker, table);
    push_rows(*worker, rows(ids, ones), 0.5f);
    kept = worker->take_rows(0, 400);  // in several pieces
    before = fetched_rows(*worker, ids, 400);
  }
  EXPECT_EQ(kept.ids, ids);
  EXPECT_EQ(kept.values, before);
  Cluster cluster(3);
  auto worker = cluster.join();
  begin(*worker, table, {kept});
  EXPECT_EQ(fetched_rows(*worker, ids, 400), before);
  push_rows(*worker, rows({5}, std::vector<float>(400, 0.1f)), 0.5f);  // the sum of squares is 0.02
  EXPECT_NEAR(fetched_rows(*worker, {5}, 400)[0], before[0] - 0.5 * 0.1 / std::sqrt(0.02), 1e-5);
}

// Ids and numbers, and a message of the same length whatever else there is.
TEST(TableTest, BytesAreThoseOfTheRowsWhateverTheTable) {
  constexpr uint64_t kWidth = 8, kShards = 2;
  for (const uint64_t entries : {uint64_t{1} << 20, kMany})
    for (const uint64_t count : {1u, 10u, 1000u}) {
      Cluster cluster(kShards, sgd(), kTimeout, 600);  // no sign of life in between
      auto worker = cluster.join();
      begin(*worker, spec(entries, kWidth));
      std::vector<uint32_t> ids;
      for (uint32_t i = 0; i < count; ++i) ids.push_back(i * 7);
      uint64_t bytes = worker->bytes();
      fetched_rows(*worker, ids, kWidth);
      const uint64_t round = kShards * (2 * sizeof(server::Message) + sizeof(uint32_t));
      EXPECT_EQ(worker->bytes() - bytes, round + count * (4 + 4 * kWidth)) << entries;
      bytes = worker->bytes();
      push_rows(*worker, rows(ids, std::vector<float>(count * kWidth)), 0.1f);
      EXPECT_EQ(worker->bytes() - bytes, round + count * (4 + 4 * kWidth)) << entries;
    }
}

// The rows count the updates that were applied: all that were acknowledged, and whole ones.
TEST(TableTest, AnAcknowledgedPushIsAppliedWheneverItsWorkerDies) {
  Cluster cluster(1, sgd());
  auto watcher = cluster.join();
  const TableSpec table = spec(kMany, 2, 0);
  begin(*watcher, table);
  const std::vector<Rows> one{rows({1, 77}, {-1, -1, -1, -1})};
  std::atomic<uint64_t> acknowledged{0};
  constexpr uint64_t kVictims = 24;
  for (uint64_t i = 0; i < kVictims; ++i) {
    auto victim = cluster.join();
    begin(*victim, table);
    for (uint64_t n = 0; n < i % 3; ++n) push_rows(*victim, one[0], 1), ++acknowledged;
    victim->start([&](Pair& pair) { pair.push({}, 1, one), ++acknowledged; });
    if (i % 2) victim->wait(0.001);
    victim.reset();  // with a push under way, or just after
  }
  while (cluster[0].status().roster.workers > 1) std::this_thread::yield();
  const uint64_t applied = cluster[0].status().roster.pushes;
  EXPECT_GE(applied, acknowledged);
  EXPECT_LE(applied, acknowledged + kVictims);
  EXPECT_EQ(fetched_rows(*watcher, {1, 77}, 2), std::vector<float>(4, static_cast<float>(applied)));
}

// It had put its rows on both shards, and begun on the one that is not the first.
TEST(TableTest, WhatAWorkerHasPutIsDroppedWhereItDiesBeforeItHasBegun) {
  Cluster cluster(2, sgd());
  const TableSpec table = spec(kMany, 2, 0);
  auto first = cluster.join();
  uint64_t attempt = 0;
  first->start([&](Pair& pair) {
    if (pair.leads()) attempt = pair.ready().attempt;
  });
  first->wait();
  perform(*first, [&](Pair& pair) {
    pair.declare(attempt, std::span(&table, 1));
    pair.put_rows(attempt, 0, rows({1, 2}, {5, 5, 5, 5}));
    if (!pair.leads()) pair.begin(attempt, 0, 0, {}, {});
  });
  first.reset();
  auto second = cluster.join();
  const std::vector<Rows> own{rows({3}, {7, 7})};
  begin(*second, table, own);
  EXPECT_EQ(fetched_rows(*second, {1, 2, 3}, 2), (std::vector<float>{0, 0, 0, 0, 7, 7}));
}

// Messages of a worker that has been given up are ignored when they arrive.
TEST(TableTest, TheLatestAttemptToBeginIsTheOneThatCounts) {
  server::Shard shard(sgd(), 1, 2);
  const TableSpec table = spec(kMany, 1, 0);
  const std::vector<float> early{1, 1}, late{2, 2};
  shard.begin(1, 4, early, {}, 0);
  shard.declare_tables(2, std::span(&table, 1));
  EXPECT_EQ(shard.size(), 0u) << "of the first attempt";
  EXPECT_THROW(shard.put_rows(1, 0, rows({1}, {5})), Error);
  shard.begin(2, 4, late, {}, 0);
  EXPECT_THROW(shard.begin(1, 4, early, {}, 0), Error);
  std::vector<float> now;
  shard.copy_weights(now);
  EXPECT_EQ(now, late);
}

// A checkpoint has a seed of its own, and others a job with another one.
TEST(TableTest, TheSeedIsThatOfWhoBegan) {
  Cluster cluster(2, sgd());
  TableSpec table = spec(50, 3);
  auto first = cluster.join(), second = cluster.join();
  begin(*first, table);
  table.seed = 99;
  EXPECT_EQ(begin(*second, table).seed, spec(50, 3).seed);
}

TEST(TableTest, RefusesWhatIsMalformedAndStaysAsItWas) {
  Tables tables({.adagrad = false}, 1, 3);
  const TableSpec specs[] = {spec(10, 2, 0), spec(20, 1, 0)};
  tables.declare(specs);
  const auto expect = [&](std::vector<uint32_t> words, std::vector<float> numbers,
                          const char* what) {
    const std::string refusal = problem_of([&] { tables.push({words, numbers}, 1); });
    EXPECT_NE(refusal.find(what), std::string::npos) << refusal;
    EXPECT_EQ(tables.rows(), 0u);
  };
  expect({1, 10, 0}, {1, 1}, "id 10 is outside of sparse table 0, which has 10 entries");
  expect({0, 2, 1, 22}, {1, 1}, "id 22 is outside of sparse table 1, which has 20 entries");
  expect({1, 2, 0}, {1, 1}, "row 2 of sparse table 0 is not on shard 1 of 3");
  expect({5, 1, 0}, {1, 1}, "cut short");
  expect({1, 1}, {1, 1}, "cut short");
  expect({1, 1, 0, 9}, {1, 1}, "1 words follow");
  expect({1, 1, 0}, {1}, "gradients of 1 numbers for rows of 2");
  EXPECT_NE(problem_of([&] { tables.check_like(std::span(specs, 1)); }).find("has 1 sparse tables"),
            std::string::npos);
  const TableSpec others[] = {spec(10, 2, 0), spec(21, 1, 0)};
  const std::string refusal = problem_of([&] { tables.check_like(others); });
  EXPECT_NE(refusal.find("sparse table 1 of this worker's model has 21 entries of 1"),
            std::string::npos)
      << refusal;
  EXPECT_NE(problem_of([&] { tables.put(2, {}); }).find("no sparse table 2"), std::string::npos);
}

TEST(TableTest, AWorkerWithoutTheTablesIsRefused) {
  Cluster cluster(1, sgd());
  auto first = cluster.join();
  begin(*first, spec(10, 2));
  auto other = cluster.join();
  EXPECT_NE(problem_of([&] { other->begin({.weights = {}}); }).find("no sparse tables"),
            std::string::npos);
}

// It must not leave its tables behind: others would be asked for them.
TEST(TableTest, AWorkerWithTablesIsRefusedWhereThereAreNone) {
  Cluster cluster(1, sgd());
  auto first = cluster.join();
  std::vector<float> weights{1, 2, 3};
  first->begin({.weights = weights});
  auto other = cluster.join();
  TableSpec table = spec(10, 2);
  std::vector<float> own{1, 2, 3};
  EXPECT_NE(problem_of([&] {
              other->begin({.weights = own, .tables = std::span(&table, 1)});
            }).find("1 sparse tables"),
            std::string::npos);
  perform(*first, [&](Pair& pair) { pair.push(std::vector<float>{1, 1, 1}, 1); });
  std::vector<float> now(3);
  perform(*first, [&](Pair& pair) { pair.fetch(now); });
  EXPECT_EQ(now, (std::vector<float>{0, 1, 2}));
}

}  // namespace
}  // namespace etr::test
