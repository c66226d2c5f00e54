#include "pipeline/pipeline.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <fstream>
#include <future>
#include <mutex>
#include <numeric>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "pipeline/shuffle_buffer.h"
#include "support/data.h"
#include "support/error_text.h"
#include "support/eventually.h"

namespace etr::test {
namespace {

using pipeline::Item;
using pipeline::Pipeline;

// Returns a spec with these stages after the source and `label`. The samples are numbered in file
// order, and their labels are the numbers.
Json spec_of(const std::string& pattern, const std::string& stages, const Json& options = {}) {
  Json spec = options.is_null() ? Json::object() : options;
  spec["stages"] = parse_json(
      R"([{"stage": "webdataset", "pattern": ")" + pattern +
          R"(", "shuffle_shards": false}, {"stage": "label", "field": "txt"})" + stages + "]",
      "test");
  return spec;
}

std::vector<int32_t> numbers(int32_t count) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

TEST(Pipeline, DeliversEverySampleOnceAndInOrder) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 3, 101);
  for (const int threads : {1, 2, 4}) {
    Pipeline p(spec_of(pattern, "", {{"threads", threads}, {"epochs", 2}}));
    EXPECT_EQ(labels_of_epoch(p), numbers(303));
    EXPECT_EQ(labels_of_epoch(p), numbers(303));
    EXPECT_EQ(labels_of_epoch(p), numbers(0));  // after the last epoch, always the end
  }
}

// Seeds of studies have up to 53 bits, which are exact in every JSON reader.
TEST(Pipeline, TakesSeedsOf53Bits) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 10);
  Pipeline p(spec_of(pattern, "", {{"seed", (int64_t{1} << 53) - 1}}));
  EXPECT_EQ(labels_of_epoch(p), numbers(10));
  EXPECT_THROW(Pipeline(spec_of(pattern, "", {{"seed", int64_t{1} << 53}})), Error);
}

TEST(Pipeline, ReadsPlainTarToo) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 2, 17, 0, 10, ".tar"), ""));
  EXPECT_EQ(labels_of_epoch(p), numbers(34));
}

TEST(Pipeline, RepeatRunsPassesWithoutASeam) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 10),
                     R"(, {"stage": "repeat", "count": 3}, {"stage": "batch", "size": 7})"));
  std::vector<int32_t> expected;
  for (int i = 0; i < 28; ++i) expected.push_back(i % 10);  // 30 samples, the remainder dropped
  EXPECT_EQ(labels_of_epoch(p), expected);
}

TEST(Pipeline, TakeEndsEachPassAndAnEndlessRepeat) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 50);
  Pipeline first(
      spec_of(pattern, R"(, {"stage": "take", "count": 5}, {"stage": "repeat", "count": 2})"));
  EXPECT_EQ(labels_of_epoch(first), (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
  EXPECT_EQ(labels_of_epoch(first), (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
  Pipeline endless(spec_of(pattern, R"(, {"stage": "repeat"}, {"stage": "take", "count": 230})"));
  EXPECT_EQ(labels_of_epoch(endless).size(), 230u);
  EXPECT_EQ(labels_of_epoch(endless).size(), 230u);
}

// How far the source has read when the first `take` is satisfied would decide the number of
// samples.
TEST(Pipeline, RefusesToRepeatWhatIsTakenFromRepeatedPasses) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 73);
  const auto said = [&](const std::string& stages) {
    return error_text([&] { Pipeline(spec_of(pattern, stages)); });
  };
  const std::string repeat = R"(, {"stage": "repeat", "count": 2})",
                    once = R"(, {"stage": "repeat", "count": 1})",
                    endless = R"(, {"stage": "repeat"})",
                    take = R"(, {"stage": "take", "count": 100})",
                    shuffle = R"(, {"stage": "shuffle", "buffer": 9})";
  for (const std::string& stages : {repeat + take + repeat, endless + shuffle + take + repeat,
                                    repeat + take + shuffle + take + endless})
    EXPECT_NE(said(stages).find("') takes from the passes of stage 3 ('repeat')"),
              std::string::npos)
        << stages << said(stages);
  for (const std::string& stages :
       {repeat + take, take + repeat, repeat + repeat + take, once + take + repeat,
        repeat + take + once, take + repeat + take})
    EXPECT_EQ(said(stages), "") << stages;
}

// The source reads on until it sees that `take` has enough; with longer queues, more of these
// samples reach the stages before `take`.
TEST(Pipeline, PassesAfterATakeDoNotDependOnHowFarTheSourceRead) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 1000);
  for (const std::string before : {R"({"stage": "shuffle", "buffer": 30})",
                                   R"({"stage": "echo", "factor": 2.5, "buffer": 30})"}) {
    const std::string stages =
        ", " + before + R"(, {"stage": "take", "count": 50}, {"stage": "repeat", "count": 4})";
    Pipeline short_queues(spec_of(pattern, stages, {{"queue_items", 4}})),
        long_queues(spec_of(pattern, stages, {{"queue_items", 512}}));
    const std::vector<int32_t> order = labels_of_epoch(short_queues);
    EXPECT_EQ(order.size(), 200u);
    EXPECT_EQ(order, labels_of_epoch(long_queues)) << before;
    EXPECT_NE(std::vector(order.begin(), order.begin() + 50),
              std::vector(order.begin() + 50, order.begin() + 100))
        << "each pass has an order of its own";
  }
}

TEST(Pipeline, LengthIsThatOfTheNextEpoch) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 50);
  for (
      const char* stages :
      {R"(, {"stage": "batch", "size": 7})",
       R"(, {"stage": "shuffle", "buffer": 30}, {"stage": "batch", "size": 7, "drop_remainder": false})",
       R"(, {"stage": "echo", "factor": 2.5}, {"stage": "repeat", "count": 3}, {"stage": "batch", "size": 8})",
       R"(, {"stage": "repeat"}, {"stage": "take", "count": 230})"}) {
    Pipeline p(spec_of(pattern, stages));
    EXPECT_EQ(p.length(), std::nullopt);  // shards are not counted before they are read
    labels_of_epoch(p);
    const auto length = p.length();
    ASSERT_TRUE(length) << stages;
    size_t items = 0;
    Item item;
    while (p.next(item) == Pipeline::Next::item) ++items;
    EXPECT_EQ(*length, items) << stages;
  }
  Pipeline on_demand(spec_of(pattern, R"(, {"stage": "echo", "mode": "on_demand", "factor": 4})"));
  EXPECT_EQ(on_demand.length(), std::nullopt);
}

// A pipeline whose source knows that it has 60 samples, with more stages.
Json sixty_samples(const TempDir& dir, const Json& stages) {
  std::ofstream(dir.path("images"), std::ios::binary)
      << std::string("\0\0\x08\x03\0\0\0\x3c\0\0\0\1\0\0\0\1", 16) << std::string(60, 'x');
  Json all = {{{"stage", "idx"}, {"images", dir.path("images")}}};
  all.insert(all.end(), stages.begin(), stages.end());
  return {{"stages", all}};
}

TEST(Pipeline, LengthIsThatOfTheRank) {
  TempDir dir;
  for (const bool drop_remainder : {true, false})
    for (int rank = 0; rank < 7; ++rank) {
      Json spec = sixty_samples(dir, Json::array());
      spec.update({{"rank", rank}, {"world_size", 7}, {"drop_remainder", drop_remainder}});
      Pipeline p(spec);
      const auto length = p.length();
      ASSERT_TRUE(length);
      EXPECT_EQ(*length, !drop_remainder && rank < 4 ? 9u : 8u) << rank;
      uint64_t items = 0;
      for (Item item; p.next(item) == Pipeline::Next::item;) ++items;
      EXPECT_EQ(items, *length) << rank;
    }
}

TEST(Pipeline, LengthIsUnknownIfItDependsOnTheSamples) {
  TempDir dir;
  for (const Json& stage :
       {Json{{"stage", "bucket"}, {"field", "image"}, {"boundaries", {2}}, {"size", 4}},
        Json{{"stage", "filter"}, {"field", "image"}, {"min", 1}}})
    EXPECT_EQ(Pipeline(sixty_samples(dir, Json::array({stage}))).length(), std::nullopt) << stage;
}

// What there is to count here would take hours.
TEST(Pipeline, LengthHoldsUpNobodyAndCanBeCancelled) {
  TempDir dir;
  Pipeline p(sixty_samples(dir, {{{"stage", "echo"}, {"mode", "together"}, {"factor", 1000}},
                                 {{"stage", "repeat"}, {"count", 1'000'000'000}}}));
  std::string said;
  std::thread counts([&] { said = error_text([&] { p.length(); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // if not yet counting, it is easier
  EXPECT_EQ(p.epoch(), 0u);
  p.cancel();
  counts.join();
  EXPECT_NE(said.find("cancelled"), std::string::npos) << said;
}

// Reading the source and counting would notice that the pipeline is cancelled.
TEST(Pipeline, WithoutEndThereIsNothingToCount) {
  TempDir dir;
  const Json repeat = {{"stage", "repeat"}}, thrice = {{"stage", "repeat"}, {"count", 3}};
  const Json take = {{"stage", "take"}, {"count", 50}}, batch = {{"stage", "batch"}, {"size", 2}};
  for (const Json& stages : {Json::array({repeat}), Json::array({take, repeat, thrice, batch})}) {
    Pipeline p(sixty_samples(dir, stages));
    p.cancel();
    EXPECT_EQ(p.length(), std::nullopt) << stages;
  }
  EXPECT_EQ(Pipeline(sixty_samples(dir, Json::array({repeat, take, batch}))).length(), 25u);
  EXPECT_EQ(Pipeline(sixty_samples(dir, Json::array({take, thrice, batch}))).length(), 75u);
}

TEST(Pipeline, EndlessRepeatOfNothingIsAnError) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 0), R"(, {"stage": "repeat"})"));
  Item item;
  try {
    p.next(item);
    FAIL() << "an endless repeat of nothing gave an item";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("gave no sample"), std::string::npos) << error.what();
  }
}

TEST(Pipeline, ShuffleIsAPermutationThatTheSeedDecides) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 150);
  const auto run = [&](int seed, int threads) {
    Pipeline p(spec_of(pattern, R"(, {"stage": "shuffle", "buffer": 64})",
                       {{"seed", seed}, {"threads", threads}}));
    return labels_of_epoch(p);
  };
  auto shuffled = run(1, 1);
  EXPECT_EQ(shuffled, run(1, 4));
  EXPECT_NE(shuffled, run(2, 1));
  EXPECT_NE(shuffled, numbers(300));
  std::sort(shuffled.begin(), shuffled.end());
  EXPECT_EQ(shuffled, numbers(300));
}

TEST(ShuffleBuffer, BeginsWithSomeItemsAndGrows) {
  struct Counter final : pipeline::Emitter {
    void emit(Item&&) override { ++emitted; }
    size_t emitted = 0;
  };
  pipeline::ShuffleBuffer buffer(100, 10, 1 << 20, "test", false);
  Counter out;
  for (size_t n = 1; n <= 400; ++n) {
    buffer.add({}, out);
    const size_t expected = n < 10 ? 0 : n <= 190 ? (n - 10) / 2 + 1 : n - 99;
    EXPECT_NEAR(static_cast<double>(out.emitted), static_cast<double>(expected), 1) << n;
    EXPECT_LT(buffer.size(), 100u);
  }
  EXPECT_EQ(buffer.size(), 99u);
  buffer.drain(out);
  EXPECT_EQ(out.emitted, 400u);
}

TEST(Pipeline, SameBytesAtAnyThreadCount) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 64, 12);
  const std::string stages =
      R"(, {"stage": "decode"}, {"stage": "echo", "factor": 2.5, "buffer": 50},
          {"stage": "random_crop", "pad": 2}, {"stage": "flip"}, {"stage": "brightness_contrast"},
          {"stage": "shuffle", "buffer": 40}, {"stage": "batch", "size": 16, "drop_remainder": false},
          {"stage": "normalize"})";
  std::vector<uint64_t> digests;
  for (const int threads : {1, 2, 4, 8}) {
    Pipeline p(spec_of(pattern, stages, {{"threads", threads}, {"seed", 3}}));
    digests.push_back(digest_of_epoch(p));
    EXPECT_NE(digest_of_epoch(p), digests.back()) << "the second epoch must differ";
  }
  for (const uint64_t digest : digests) EXPECT_EQ(digest, digests.front());
}

TEST(Pipeline, QueuesKeepTheirBounds) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 200, 16),
                     R"(, {"stage": "decode"}, {"stage": "batch", "size": 4})",
                     {{"queue_items", 8}, {"prefetch", 2}}));
  Item item;
  ASSERT_EQ(p.next(item), Pipeline::Next::item);
  Json stats;
  const auto held_back = [&] {
    stats = p.stats();
    for (const Json& stage : stats["stages"]) {
      if (!stage.contains("queue_items")) continue;
      EXPECT_LT(stage["queue_items"].get<int>(), stage["queue_limit_items"].get<int>() + 2)
          << "below its limit, a queue takes one more message; " << stage.dump();
    }
    return stats["stages"][0]["blocked_s"] > 0.02;
  };
  EXPECT_TRUE(eventually(held_back)) << stats.dump();  // upstream has run as far as it can
  EXPECT_LE(stats["stages"][0]["items_out"].get<int>(), 4 + 8 + 3 * 4 + 8);
}

TEST(Pipeline, AnEpochThatIsEndedIsNotReadToItsEnd) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 2000);
  for (const std::string stages :
       {R"(, {"stage": "batch", "size": 4})",
        R"(, {"stage": "echo", "mode": "on_demand", "factor": 3, "buffer": 8},
             {"stage": "batch", "size": 4})",
        R"(, {"stage": "repeat", "count": 5}, {"stage": "shuffle", "buffer": 8},
             {"stage": "batch", "size": 4})"}) {
    Pipeline p(spec_of(pattern, stages, {{"queue_items", 8}, {"prefetch", 2}, {"epochs", 3}}));
    Item item;
    for (int epoch = 0; epoch < 3; ++epoch) {
      ASSERT_EQ(p.next(item), Pipeline::Next::item);
      p.end_epoch();
    }
    EXPECT_EQ(p.next(item), Pipeline::Next::end_of_epoch) << "the last epoch is over";
    EXPECT_TRUE(p.over());
    p.end_epoch();
    EXPECT_EQ(p.epoch(), 3u) << "there is no other epoch to end";
    EXPECT_LT(p.stats()["stages"][0]["items_out"].get<int>(), 300) << stages;
  }
}

// The maps are at work on one sample of the epoch, and another one waits for them.
TEST(Pipeline, EndsAnEpochWithoutWaiting) {
  TempDir dir;
  std::mutex mutex;
  std::condition_variable changed;
  bool blocks = false, goes_on = false;
  int calls = 0;  // in the first epoch
  const auto wait = [&](Item& item, uint64_t epoch) {
    std::unique_lock lock(mutex);
    if (epoch > 0) return;
    ++calls;
    if (item.ordinal == 0) return;
    blocks = true;
    changed.notify_all();
    changed.wait(lock, [&] { return goes_on; });
  };
  Pipeline p(spec_of(make_shards(dir, 1, 500), R"(, {"stage": "map", "function": "wait"})",
                     {{"threads", 1}, {"queue_items", 4}}),
             {{"wait", wait}});
  Item item;
  ASSERT_EQ(p.next(item), Pipeline::Next::item);
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return blocks; });
  }
  EXPECT_TRUE(eventually([&] { return p.stats()["stages"][0]["items_out"] >= 3; }));
  p.end_epoch();
  EXPECT_EQ(p.save()["epoch"], 1);
  EXPECT_FALSE(p.wait(0.01)) << "the maps have yet to give the sample back";
  {
    const std::scoped_lock lock(mutex);
    goes_on = true;
  }
  changed.notify_all();
  EXPECT_EQ(labels_of_epoch(p), numbers(500));
  EXPECT_EQ(calls, 2) << "the sample that waited went through the maps";
}

// What is left of a pass has no samples for `repeat` then, which is no error.
TEST(Pipeline, EndsAnEpochThatRepeatsWithoutEnd) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 3), R"(, {"stage": "repeat"})", {{"queue_items", 64}}));
  Item item;
  for (uint64_t epoch = 0; epoch < 300; ++epoch) {
    ASSERT_EQ(p.next(item), Pipeline::Next::item);
    EXPECT_EQ(item.ordinal, 0u);
    EXPECT_EQ(p.epoch(), epoch);
    p.end_epoch();
  }
}

TEST(Pipeline, ByteBoundHoldsBackBigSamples) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 100, 64), R"(, {"stage": "decode"})",
                     {{"queue_bytes", 50000}, {"queue_items", 1000}}));
  Item item;
  ASSERT_EQ(p.next(item), Pipeline::Next::item);
  Json source;
  EXPECT_TRUE(eventually([&] {
    source = p.stats()["stages"][0];
    return source["blocked_s"] > 0.02;
  })) << source.dump();
  EXPECT_LT(p.stats()["stages"][0]["items_out"].get<int>(), 100);
}

// Samples in flight count with the size that they have after the maps, and only once, however many
// messages are in flight.
TEST(Pipeline, CountsWhatIsInFlightForNoMoreThanItBecomes) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 400, 64), R"(, {"stage": "decode"})", {{"threads", 2}}));
  Item item;
  int64_t most = 0;
  while (p.next(item) == Pipeline::Next::item) {
    const Json stats = p.stats();
    for (const Json& stage : stats["stages"])
      most = std::max(most, stage.value("queue_bytes", int64_t{0}));
  }
  EXPECT_LT(most, 512 * 64 * 64 * 3 * 2);
  EXPECT_GT(most, 64 * 64 * 3);
}

// Makes the first sample of the run 4 MB large, more than its queue may hold.
void enlarge_first(Item& item, uint64_t epoch) {
  if (epoch == 0 && item.ordinal == 0) item.set("large", Tensor(DType::u8, {4 << 20}));
}

// Calls the function `grow` behind the source.
Json growing_spec(const TempDir& dir) {
  return spec_of(make_shards(dir, 1, 500), R"(, {"stage": "map", "function": "grow"})",
                 {{"threads", 4}, {"queue_bytes", 1 << 20}});
}

// The small samples after a large one must not be taken for large ones: only one at a time would be
// in the maps then.
TEST(Pipeline, OneLargeSampleDoesNotSlowDownTheOthers) {
  TempDir dir;
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;
  bool all_inside = false;
  // From the second epoch on, waits a little for the other threads.
  Pipeline p(growing_spec(dir), {{"grow", [&](Item& item, uint64_t epoch) {
                                    enlarge_first(item, epoch);
                                    if (epoch == 0) return;
                                    std::unique_lock lock(mutex);
                                    all_inside = all_inside || ++inside == 4;
                                    changed.notify_all();
                                    changed.wait_for(lock, std::chrono::milliseconds(10),
                                                     [&] { return all_inside; });
                                    --inside;
                                  }}});
  const auto done = [&] {
    std::scoped_lock lock(mutex);
    return all_inside;
  };
  Item item;
  for (int ends = 0; ends < 3 && !done();) ends += p.next(item) == Pipeline::Next::end_of_epoch;
  EXPECT_TRUE(done()) << p.stats().dump();
}

// A head whose queue is full only of what the maps are working on waits for them, and not for the
// consumer: an echo node behind it would otherwise believe that upstream is fast enough.
TEST(Pipeline, AHeadThatWaitsForItsMapsIsNotHeldBack) {
  TempDir dir;
  std::promise<void> second, go_on;
  Pipeline p(growing_spec(dir), {{"grow", [&](Item& item, uint64_t epoch) {
                                    enlarge_first(item, epoch);
                                    if (epoch > 0 || item.ordinal != 1) return;
                                    second.set_value();
                                    go_on.get_future().wait();
                                  }}});
  Item item;
  EXPECT_EQ(p.next(item), Pipeline::Next::item);
  second.get_future().wait();
  const Json before = p.stats()["stages"][0];
  Json after;
  EXPECT_TRUE(eventually([&] {
    after = p.stats()["stages"][0];
    return after["maps_s"].get<double>() + after["blocked_s"].get<double>() >
           before["maps_s"].get<double>() + before["blocked_s"].get<double>() + 0.02;
  }));
  EXPECT_EQ(after["blocked_s"], before["blocked_s"]) << after.dump();
  go_on.set_value();
}

// Where a batch needs more samples than there are, or all samples are dropped, the source must not
// run through epochs whose ends nobody takes.
TEST(Pipeline, EpochsWithoutOutputAreNotReadAheadWithoutBound) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 10);
  for (const char* stages :
       {R"(, {"stage": "batch", "size": 64})",
        R"(, {"stage": "filter", "field": "label", "min": 99})",
        R"(, {"stage": "shuffle"}, {"stage": "filter", "field": "label", "min": 99},
                                  {"stage": "batch", "size": 4})"}) {
    Pipeline p(spec_of(pattern, stages, {{"queue_items", 16}, {"threads", 2}}));
    Item item;
    for (int epoch = 0; epoch < 40; ++epoch) ASSERT_EQ(p.next(item), Pipeline::Next::end_of_epoch);
    Json source = p.stats()["stages"][0], before = source;
    EXPECT_TRUE(eventually([&] {  // the source is held back, or runs away
      source = p.stats()["stages"][0];
      if (source["items_in"] != before["items_in"]) before = source;
      return source["blocked_s"].get<double>() > before["blocked_s"].get<double>() + 0.02 ||
             source["items_in"] > 10000;
    })) << source.dump();
    EXPECT_LT(source["items_in"].get<int>(), 400 + 200) << stages;
    EXPECT_EQ(p.epoch(), 40u);
  }
}

TEST(Pipeline, CancelUnblocksAConsumer) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 10);
  for (int i = 0; i < 20; ++i) {  // cancelled at once, or while the consumer waits
    Pipeline p(spec_of(pattern, R"(, {"stage": "delay", "milliseconds": 600000})"));
    std::thread canceller([&] {
      if (i % 2) eventually([&] { return p.stats()["stages"][0]["items_out"] > 0; });
      p.cancel();
    });
    Item item;
    try {
      p.next(item);
      ADD_FAILURE() << "next() returned";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::cancelled);
    }
    canceller.join();
  }
}

TEST(Pipeline, SamplesOfACacheAreNotDelayed) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 10),
                     R"(, {"stage": "delay", "milliseconds": 50}, {"stage": "cache"})",
                     {{"queue_items", 2}}));
  double first = 0, least = 1e9;
  for (int epoch = 0; epoch < 20 && least > 0.25; ++epoch) {
    const int64_t begun = now_ns();
    Item item;
    for (int samples = 0; p.next(item) == Pipeline::Next::item;) ASSERT_LE(++samples, 10);
    const double seconds = seconds_between(begun, now_ns());
    if (epoch == 0) first = seconds;
    if (epoch > 1) least = std::min(least, seconds);  // 1 was read while 0 was delayed
  }
  EXPECT_GT(first, 0.4);
  EXPECT_LT(least, 0.25);
}

TEST(Pipeline, DestroysHalfWayWithoutHanging) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 200, 8);
  for (int i = 0; i < 50; ++i) {
    Pipeline p(spec_of(pattern,
                       R"(, {"stage": "decode"}, {"stage": "echo", "factor": 3},
                           {"stage": "batch", "size": 8})",
                       {{"threads", 1 + i % 4}}));
    Item item;
    for (int n = 0; n < i % 7; ++n) p.next(item);
  }
}

TEST(Pipeline, StatisticsAddUp) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 40), R"(, {"stage": "echo", "factor": 2, "buffer": 8},
      {"stage": "batch", "size": 8})",
                     {{"epochs", 1}}));
  EXPECT_EQ(labels_of_epoch(p).size(), 80u);
  const Json stats = p.stats();
  EXPECT_EQ(stats["stages"][0]["items_out"], 40);
  EXPECT_EQ(stats["stages"][2]["name"], "echo");
  EXPECT_EQ(stats["stages"][2]["items_in"], 40);
  EXPECT_EQ(stats["stages"][2]["items_out"], 80);
  EXPECT_EQ(p.items_out(0), 40);
  EXPECT_EQ(p.items_out(2), 80);
  EXPECT_EQ(stats["consumer"]["items"], 10);
  EXPECT_EQ(stats["consumer"]["fresh"], 40);
  EXPECT_EQ(stats["consumer"]["echoed"], 40);
}

void expect_error(const Json& spec, const std::string& part) {
  try {
    Pipeline p(spec);
    ADD_FAILURE() << "accepted: " << spec.dump();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(PipelineSpec, NamesWhatIsWrong) {
  expect_error({{"stages", Json::array()}}, "at least one stage");
  expect_error(spec_of("x", R"(, {"stage": "ecko"})"), "did you mean 'echo'?");
  expect_error(spec_of("x", R"(, {"stage": "echo", "facto": 2})"), "did you mean 'factor'?");
  expect_error(spec_of("x", R"(, {"stage": "echo", "factor": 0.5})"), "must lie in [1,");
  expect_error(spec_of("x", R"(, {"stage": "echo"})"), "'factor' (number) is required");
  expect_error(spec_of("x", R"(, {"stage": "batch", "size": "8"})"), "must be of type integer");
  expect_error(spec_of("x", R"(, {"stage": "folder", "root": "y"})"),
               "one source, its first stage");
  expect_error(spec_of("x", R"(, {"stage": "echo", "factor": 2, "mode": "always"})"), "on_demand");
  expect_error(spec_of("x", "", {{"thread", 2}}), "did you mean 'threads'?");
}

TEST(PipelineSpec, MissingFilesAreNamedWhenReadingStarts) {
  Pipeline p(spec_of("/nonexistent/x-{0..3}.tar", ""));
  Item item;
  try {
    p.next(item);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::not_found);
    EXPECT_NE(std::string(error.what()).find("/nonexistent/x-0.tar"), std::string::npos);
  }
}

}  // namespace
}  // namespace etr::test
