#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include "core/clock.h"
#include "core/error.h"
#include "echo/traces.h"
#include "support/eventually.h"

namespace etr::test {
namespace {

TEST(Echo, OutputIsFactorTimesInput) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 200);
  for (const double factor : {1.0, 2.0, 2.5, 3.3})
    for (const int buffer : {1, 64, 1000}) {
      Pipeline p(spec_of(pattern, R"({"stage": "echo", "factor": )" + std::to_string(factor) +
                                      R"(, "buffer": )" + std::to_string(buffer) + "}"));
      std::map<int32_t, int> uses;
      for (const int32_t n : labels_of_epoch(p)) ++uses[n];
      EXPECT_EQ(uses.size(), 400u);
      int total = 0;
      for (const auto& [n, count] : uses) {
        EXPECT_TRUE(count == std::floor(factor) || count == std::ceil(factor));
        total += count;
      }
      EXPECT_NEAR(total, 400 * factor, 1);
    }
}

TEST(Echo, WithFactorOneItChangesNothing) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 50);
  Pipeline with(spec_of(pattern, R"({"stage": "echo", "factor": 1, "buffer": 1})"));
  Pipeline without(spec_of(pattern, R"({"stage": "take", "count": 1000})"));
  EXPECT_EQ(labels_of_epoch(with), labels_of_epoch(without));
}

TEST(Echo, EveryReplicaIsAugmentedAnew) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 20, 24),
                     R"({"stage": "decode"}, {"stage": "echo", "factor": 4, "buffer": 1})",
                     R"(, {"stage": "random_crop", "pad": 12}, {"stage": "flip"})"));
  std::map<uint64_t, std::set<std::string>> looks;
  std::map<uint64_t, std::set<uint32_t>> replicas;
  Item item;
  while (p.next(item) == Pipeline::Next::item) {
    const auto bytes = pipeline::require_field(item, "image").view<char>();
    looks[item.ordinal].insert({bytes.begin(), bytes.end()});
    replicas[item.ordinal].insert(item.replica);
  }
  ASSERT_EQ(looks.size(), 20u);
  size_t distinct = 0;
  for (const auto& [ordinal, set] : looks) distinct += set.size();
  EXPECT_GE(distinct, 78u) << "of 80: equal ones are rare among 1,250 possible crops";
  for (const auto& [ordinal, set] : replicas) EXPECT_EQ(set.size(), 4u);
}

// In whichever order a buffer yields the copies, `fresh` counts the samples that have been used.
TEST(Echo, TheFirstUseOfASampleIsTheFreshOne) {
  TempDir dir;
  const std::string shards = make_shards(dir, 1, 60);
  for (const char* echo : {R"({"stage": "echo", "factor": 4, "buffer": 100})",
                           R"({"stage": "echo", "factor": 2.5, "buffer": 20, "draw": "newest"})",
                           R"({"stage": "echo", "mode": "together", "factor": 3})"}) {
    Pipeline p(spec_of(shards, echo));
    std::map<uint64_t, uint32_t> uses;
    for (Item item; p.next(item) == Pipeline::Next::item;)
      EXPECT_EQ(item.replica == 0, uses[item.ordinal]++ == 0) << item.ordinal << " of " << echo;
    EXPECT_EQ(uses.size(), 60u);
  }
}

TEST(Echo, PayloadsAreSharedNotCopied) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 10, 16),
                     R"({"stage": "decode"}, {"stage": "echo", "factor": 5, "buffer": 1})"));
  std::map<uint64_t, const void*> data;
  std::vector<Item> kept;
  for (Item item; p.next(item) == Pipeline::Next::item;) {
    const void* here = pipeline::require_field(item, "image").data();
    EXPECT_EQ(data.try_emplace(item.ordinal, here).first->second, here);
    kept.push_back(item);
  }
  EXPECT_EQ(kept.size(), 50u);
}

// After `batch`, whole batches are repeated. The samples of a repeated batch count as echoed, also
// if they were fresh in the original.
TEST(Echo, RepeatedBatchesHoldNothingFresh) {
  TempDir dir;
  const std::string shards = make_shards(dir, 1, 40);
  const std::string batch = R"({"stage": "batch", "size": 8}, )";
  for (const std::string& before :
       {std::string(), std::string(R"({"stage": "echo", "factor": 2, "buffer": 30}, )")})
    for (
        const std::string& echo :
        {std::string(R"({"stage": "echo", "factor": 3, "buffer": 2})"),
         std::string(
             R"({"stage": "echo", "factor": 2, "buffer": 3}, {"stage": "echo", "factor": 2, "buffer": 3})"),
         std::string(R"({"stage": "echo", "mode": "auto", "factor": 4, "buffer": 2})")}) {
      Pipeline p(spec_of(shards, before + batch + echo));
      int64_t fresh = 0, echoed = 0;
      for (Item item; p.next(item) == Pipeline::Next::item;) {
        EXPECT_EQ(item.batch.fresh + item.batch.echoed, 8);
        EXPECT_TRUE(item.replica == 0 || item.batch.fresh == 0);
        fresh += item.batch.fresh;
        echoed += item.batch.echoed;
      }
      EXPECT_EQ(fresh, 40) << before << echo;
      const Json consumer = p.stats()["consumer"];
      EXPECT_EQ(consumer["fresh"], fresh);
      EXPECT_EQ(consumer["echoed"], echoed);
    }
}

// A batch has all copies of a sample or none, and each copy is augmented differently.
TEST(TogetherEcho, CopiesStandInOneBatch) {
  TempDir dir;
  const std::string shards = make_shards(dir, 2, 30, 24);
  for (const int factor : {1, 2, 4}) {
    Pipeline p(
        spec_of(shards,
                cat(R"({"stage": "decode"}, {"stage": "echo", "mode": "together", "factor": )",
                    factor, "}"),
                R"(, {"stage": "random_crop", "pad": 12}, {"stage": "batch", "size": 8})", 0, 2));
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::set<int32_t> all;
      int batches = 0;
      for (Item batch; p.next(batch) == Pipeline::Next::item; ++batches) {
        EXPECT_EQ(batch.batch.unique, 8 / factor);
        EXPECT_EQ(batch.batch.fresh, 8 / factor);
        EXPECT_EQ(batch.batch.echoed, 8 - 8 / factor);
        const auto labels = pipeline::require_field(batch, "label").view<int32_t>();
        const auto pixels = pipeline::require_field(batch, "image").view<char>();
        const size_t bytes = pixels.size() / 8;
        std::set<std::string> looks;
        for (size_t i = 0; i < 8; ++i) {
          EXPECT_EQ(labels[i], labels[i / factor * factor]);
          all.insert(labels[i]);
          looks.emplace(&pixels[i * bytes], bytes);
        }
        EXPECT_GE(looks.size(), 7u) << "equal crops are rare";
      }
      EXPECT_EQ(batches, 60 * factor / 8);
      EXPECT_EQ(all.size(), static_cast<size_t>(60 * factor / 8 * 8 / factor))
          << "no sample is in two batches";
    }
  }
}

TEST(TogetherEcho, RestoresInTheMidstOfASample) {
  TempDir dir;
  const Json spec =
      spec_of(make_shards(dir, 1, 30), R"({"stage": "echo", "mode": "together", "factor": 3})",
              R"(, {"stage": "shuffle", "buffer": 5})");
  Pipeline whole(spec), restored(spec);
  Item item;
  for (int i = 0; i < 40; ++i) whole.next(item);
  restored.restore(parse_json(whole.save().dump(), "state"));
  EXPECT_EQ(labels_of_epoch(whole), labels_of_epoch(restored));
}

TEST(TogetherEcho, MistakesAreNamed) {
  TempDir dir;
  const std::string shards = make_shards(dir, 1, 4);
  const auto error_of = [&](const std::string& options) -> std::string {
    try {
      Pipeline p(spec_of(shards, R"({"stage": "echo", "mode": "together", )" + options + "}"));
      return "none";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_NE(error_of(R"("factor": 2.5)").find("takes a whole factor, not 2.5"), std::string::npos);
  EXPECT_NE(error_of(R"("factor": 1.0000001)").find("takes a whole factor, not 1.0000001"),
            std::string::npos);
  EXPECT_NE(error_of(R"("factor": 2, "log": "x")").find("together decides nothing"),
            std::string::npos);
}

TEST(Echo, BatchesSayWhatIsFreshAndWhatEchoed) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 40), R"({"stage": "echo", "factor": 2, "buffer": 30})",
                     R"(, {"stage": "batch", "size": 8})"));
  int fresh = 0, echoed = 0;
  for (Item item; p.next(item) == Pipeline::Next::item;) {
    EXPECT_EQ(item.batch.fresh + item.batch.echoed, 8);
    fresh += item.batch.fresh;
    echoed += item.batch.echoed;
  }
  EXPECT_EQ(fresh, 40);
  EXPECT_EQ(echoed, 40);
}

TEST(Echo, ShuffleBufferSpreadsTheCopies) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 400), R"({"stage": "echo", "factor": 2, "buffer": 200})"));
  const auto labels = labels_of_epoch(p);
  std::map<int32_t, size_t> first;
  double distance = 0;
  for (size_t i = 0; i < labels.size(); ++i)
    if (const auto [it, fresh] = first.try_emplace(labels[i], i); !fresh)
      distance += static_cast<double>(i - it->second);
  EXPECT_GT(distance / 400, 60) << "copies of a sample are far apart on average";
}

// Upstream yields a sample every 100 ms, and the consumer never pauses, so it gets mostly echoes.
TEST(OnDemandEcho, AConsumerThatWouldWaitGetsEchoes) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 100),
                     R"({"stage": "echo", "mode": "on_demand", "factor": 8})",
                     R"(, {"stage": "batch", "size": 8})", 100));
  int fresh = 0, echoed = 0;
  Item item;
  for (int i = 0; i < 16; ++i) {
    ASSERT_EQ(p.next(item), Pipeline::Next::item);
    fresh += item.batch.fresh;
    echoed += item.batch.echoed;
  }
  EXPECT_GE(fresh, 8) << "on credit, a sample is used at most 16 times";
  EXPECT_GT(echoed, fresh);
}

// Whether upstream is far ahead of a consumer of batches behind an echo node. With a shorter queue,
// echoes are right while the source just waits for a core.
bool is_ahead(const Pipeline& p) {
  const Json stats = p.stats();
  return stats["consumer"]["ready"] >= 2 && stats["stages"][2]["queue_items"] >= 96;
}

// A consumer that always finds a batch ready gets fresh samples.
TEST(OnDemandEcho, AFastUpstreamIsNotEchoed) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 4, 1000),
                     R"({"stage": "echo", "mode": "on_demand", "factor": 8})",
                     R"(, {"stage": "batch", "size": 8})"));
  const auto consume = [&](int batches) {
    for (Item item; batches > 0; --batches) {
      ASSERT_TRUE(eventually([&] { return is_ahead(p); }));
      ASSERT_EQ(p.next(item), Pipeline::Next::item);
    }
  };
  ASSERT_TRUE(p.wait(60));
  consume(20);  // at first, echoes make up for missing samples
  const Json before = p.stats()["consumer"];
  consume(40);
  const Json after = p.stats()["consumer"];
  const auto gained = [&](const char* key) {
    return after[key].get<int>() - before[key].get<int>();
  };
  EXPECT_GE(gained("fresh"), 290) << after.dump();
  EXPECT_LE(gained("echoed"), 30) << after.dump();
}

// Stalls of upstream are bridged on credit. No sample has more than twice `factor` uses, and all
// together have no more than `factor` each, plus the credit of a full buffer.
TEST(OnDemandEcho, TheCapHolds) {
  TempDir dir;
  for (const std::string mode : {"on_demand", "auto"}) {
    const std::string stage =
        R"({"stage": "echo", "mode": ")" + mode + R"(", "factor": 3, "buffer": 4})";
    Pipeline p(spec_of(make_shards(dir, 1, 60), stage, "", 2));
    std::map<int32_t, int> uses;
    for (const int32_t n : labels_of_epoch(p)) ++uses[n];
    EXPECT_EQ(uses.size(), 60u);
    int all = 0;
    for (const auto& [n, count] : uses) {
      EXPECT_LE(count, 6) << n << ": at most twice `factor`";
      all += count;
    }
    EXPECT_LE(all, 3 * 60 + 3 * 4) << "the factor, and credit for four samples";
  }
}

// Where a fresh sample finds the buffer full, the oldest one leaves it.
TEST(OnDemandEcho, RepeatsOnlyTheNewestSamplesThatTheBufferHolds) {
  TempDir dir;
  for (const std::string mode : {"on_demand", "auto"}) {
    const std::string stage =
        R"({"stage": "echo", "mode": ")" + mode + R"(", "factor": 9, "buffer": 4})";
    Pipeline p(spec_of(make_shards(dir, 1, 60), stage, "", 2));
    uint64_t newest = 0;
    int echoes = 0;
    for (const auto& [ordinal, replica, age] : trace_of_epoch(p)) {
      newest = std::max(newest, ordinal);
      EXPECT_LT(newest - ordinal, 4u) << mode;
      echoes += replica > 0;
    }
    EXPECT_GT(echoes, 60) << mode;
  }
}

// An upstream that yields `after` samples and then nothing until the test sets `free`.
struct Stuck {
  explicit Stuck(uint64_t after)
      : functions{{"stuck", [this, after](Item& item, uint64_t) {
                     while (item.ordinal == after && !free)
                       std::this_thread::sleep_for(std::chrono::milliseconds(1));
                   }}} {}
  std::atomic<bool> free{false};
  pipeline::MapFunctions functions;
};

Json stuck_spec(const std::string& pattern, const std::string& echo) {
  Json spec = spec_of(pattern, R"({"stage": "map", "function": "stuck"}, )" + echo);
  spec["queue_items"] = 4;  // one sample per message
  return spec;
}

TEST(OnDemandEcho, ADeadUpstreamIsNotRepeatedForEver) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 40);
  for (const std::string mode : {"on_demand", "auto"})
    for (const int buffer : {100, 4}) {
      Stuck stuck(10);
      Pipeline p(stuck_spec(pattern, R"({"stage": "echo", "factor": 3, "mode": ")" + mode +
                                         R"(", "buffer": )" + std::to_string(buffer) + "}"),
                 stuck.functions);
      std::map<uint64_t, int> uses;
      Item item;
      // What must come may take long on busy cores; then nothing comes.
      const int least = buffer == 100 ? 10 * 6 : 10 + 4;
      for (int taken = 0; p.wait(taken < least || uses.size() < 10 ? 300 : 2) &&
                          p.next(item) == Pipeline::Next::item;
           ++taken)
        ++uses[item.ordinal];
      EXPECT_EQ(uses.size(), 10u);
      int all = 0;
      for (const auto& [ordinal, count] : uses) {
        EXPECT_LE(count, 6) << mode;
        all += count;
      }
      if (buffer == 100) {
        EXPECT_EQ(all, 10 * 6) << mode << ": each twice as often as the factor";
      } else {
        EXPECT_LE(all, 10 * 3 + 4 * 3) << mode;
        EXPECT_GE(all, 10 + 4) << mode;
      }
      stuck.free = true;
      while (p.next(item) == Pipeline::Next::item) ++uses[item.ordinal];
      EXPECT_EQ(uses.size(), 40u) << "it continues when upstream does";
    }
}

TEST(OnDemandEcho, NothingIsRepeatedBeforeTheFirstSample) {
  TempDir dir;
  Stuck stuck(0);
  Pipeline p(
      stuck_spec(make_shards(dir, 1, 5), R"({"stage": "echo", "mode": "on_demand", "factor": 3})"),
      stuck.functions);
  EXPECT_FALSE(p.wait(0.2));
  p.cancel();
  stuck.free = true;
}

std::vector<Json> lines_of(const std::string& path) {
  std::vector<Json> rows;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) rows.push_back(parse_json(line, path));
  return rows;
}

// Compares the factor with the ratio of what samples and steps really took, which depends on the
// load of the machine.
TEST(AutoEcho, FollowsWhatTheRunNeeds) {
  using Clock = std::chrono::steady_clock;
  constexpr int kFresh = 400;
  TempDir dir;
  // Returns the factor, and the one that was needed.
  const auto factors_of = [&](double delay_ms, int attempt) {
    const std::string log = dir.path(cat("log", delay_ms, "-", attempt));
    Pipeline p(spec_of(
        make_shards(dir, 1, kFresh),
        R"({"stage": "echo", "mode": "auto", "factor": 40, "buffer": 200, "log": ")" + log + "\"}",
        "", delay_ms));
    uint64_t given = 0;
    double steps_s = 0;
    for (Item item; p.next(item) == Pipeline::Next::item; ++given) {
      const auto begin = Clock::now();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      steps_s += std::chrono::duration<double>(Clock::now() - begin).count();
    }
    uint64_t echoes = 0;
    for (const Json& row : lines_of(log)) echoes += row["echoes"].get<uint64_t>();
    EXPECT_EQ(echoes, given - kFresh) << "the log has every echo";
    double factor = 1;
    for (const Json& row : lines_of(log)) factor = row.value("factor", factor);
    const Json stats = p.stats();
    const auto delay = std::find_if(stats["stages"].begin(), stats["stages"].end(),
                                    [](const Json& stage) { return stage["name"] == "delay"; });
    const double sample_s = (*delay)["busy_s"].get<double>() / kFresh;
    const double needed = sample_s / (steps_s / static_cast<double>(given));
    return std::pair(factor, std::max(1.0, needed));
  };
  std::string why;
  for (int attempt = 0; attempt < 5; ++attempt) {  // the load may change in the midst of one
    const auto [fast, fast_needed] = factors_of(2, attempt);
    const auto [slow, slow_needed] = factors_of(8, attempt);
    why = cat(fast, " for ", fast_needed, ", ", slow, " for ", slow_needed);
    const auto fits = [](double factor, double needed) {
      return factor > needed / 1.6 && factor < needed * 1.6;
    };
    if (fits(fast, fast_needed) && fits(slow, slow_needed) && slow > 1.5 * fast) return;
  }
  FAIL() << why;
}

// The maps of upstream keep all threads of the pool busy, as decoding does. The node's own task
// must not wait until they have nothing left to do.
TEST(OnDemandEcho, GetsATurnWhileMapsKeepAllThreadsBusy) {
  constexpr int kFresh = 600;
  TempDir dir;
  for (const char* mode : {"on_demand", "auto"}) {
    Json spec =
        spec_of(make_shards(dir, 1, kFresh),
                cat(R"({"stage": "map", "function": "decode"}, {"stage": "echo", "mode": ")", mode,
                    R"(", "factor": 8, "buffer": 20})"));
    spec["threads"] = 2;
    Pipeline p(spec, {{"decode", [](Item&, uint64_t) {
                         std::this_thread::sleep_for(std::chrono::milliseconds(4));
                       }}});
    int given = 0;
    for (Item item; p.next(item) == Pipeline::Next::item; ++given)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    // A sample takes 2 ms on two threads, and the consumer could take one each 0.3 ms or so. When
    // echoes waited for whole messages of samples, it got 1.5 for each fresh one. On busy cores it
    // sleeps longer, and asks for fewer.
    const Json stats = p.stats();
    const double waited = stats["consumer"]["waiting_s"], elapsed = stats["elapsed_s"];
    EXPECT_TRUE(given > 3 * kFresh || waited < 0.5 * elapsed)
        << mode << ": " << given << " " << stats;
  }
}

// If the consumer always finds something ready, upstream is the faster side.
TEST(AutoEcho, AFastUpstreamIsNotEchoed) {
  TempDir dir;
  const std::string log = dir.path("log");
  Json spec = spec_of(make_shards(dir, 2, 1000),
                      R"({"stage": "echo", "mode": "auto", "factor": 8, "log": ")" + log + "\"}",
                      R"(, {"stage": "batch", "size": 8})");
  Pipeline p(spec);
  ASSERT_TRUE(p.wait(60));
  int fresh = 0, echoed = 0, batches = 0;
  for (Item item;; ++batches) {
    if (batches < 200) {
      ASSERT_TRUE(eventually([&] { return is_ahead(p); }));
    }
    if (p.next(item) != Pipeline::Next::item) break;
    fresh += item.batch.fresh;
    echoed += item.batch.echoed;
  }
  EXPECT_GE(fresh, 1992);
  EXPECT_LE(echoed, 200) << "only at the start";
  for (const Json& row : lines_of(log)) EXPECT_FALSE(row.contains("factor")) << row.dump();
}

TEST(AutoEcho, KeepsToItsCap) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 500),
                     R"({"stage": "echo", "mode": "auto", "factor": 2, "buffer": 1})", "", 3));
  const Trace trace = trace_of_epoch(p);
  EXPECT_GT(trace.size(), 600u);
  EXPECT_LE(trace.size(), 2 * 500u + 2);
}

TEST(Echo, NodesMayFollowEachOther) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 60);
  const std::string fixed = R"({"stage": "echo", "factor": 2, "buffer": 10})";
  for (const std::string& second :
       {fixed, std::string(R"({"stage": "echo", "mode": "on_demand", "factor": 3})"),
        std::string(R"({"stage": "echo", "mode": "auto", "factor": 3, "draw": "newest"})")}) {
    Pipeline p(spec_of(pattern, fixed, ", " + second, 0, 2));
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::map<uint64_t, std::set<uint32_t>> replicas;
      size_t items = 0;
      for (const auto& [ordinal, replica, age] : trace_of_epoch(p)) {
        EXPECT_TRUE(replicas[ordinal].insert(replica).second) << "each copy has its own number";
        ++items;
      }
      EXPECT_EQ(replicas.size(), 60u);
      EXPECT_GE(items, 120u);
      if (second == fixed) {
        EXPECT_EQ(items, 240u);
      }
    }
  }
}

std::string error_of_stages(const std::string& pattern, const std::string& stages) {
  try {
    Pipeline p(spec_of(pattern, stages));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Echo, CopiesHaveNumbersOfTheirOwnUpToTheLargestFactor) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 2);
  const std::string two = R"({"stage": "echo", "factor": 2, "buffer": 1}, )";
  for (const std::string& options :
       {std::string(R"("factor": 1023)"), std::string(R"("factor": 1023, "mode": "together")")}) {
    Pipeline p(spec_of(pattern, two + R"({"stage": "echo", )" + options + "}"));
    std::map<uint64_t, std::set<uint32_t>> replicas;
    for (const auto& [ordinal, replica, age] : trace_of_epoch(p)) replicas[ordinal].insert(replica);
    ASSERT_EQ(replicas.size(), 2u);
    for (const auto& [ordinal, numbers] : replicas) EXPECT_EQ(numbers.size(), 2 * 1023u);
  }
  const std::string error = error_of_stages(pattern, R"({"stage": "echo", "factor": 1024})");
  EXPECT_NE(error.find("'factor'"), std::string::npos) << error;
  EXPECT_NE(error.find("1023"), std::string::npos) << error;
}

TEST(Echo, MoreNodesInARowThanCopiesCanBeNumberedForAreNamed) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 4);
  const auto node = [](int factor) { return cat(R"({"stage": "echo", "factor": )", factor, "}"); };
  const std::string three = cat(node(1023), ", ", node(1023), ", ", node(1023));
  EXPECT_EQ(error_of_stages(pattern, three), "");
  EXPECT_EQ(error_of_stages(pattern, cat(node(4), ", ", three)), "");
  const std::string error = error_of_stages(pattern, cat(node(5), ", ", three));
  EXPECT_NE(error.find("pipeline stage 6 ('echo') repeats what is repeated by stage 3 ('echo'), "
                       "stage 4 ('echo'), stage 5 ('echo')"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("lower 'factor'"), std::string::npos) << error;
  // On credit, a sample can have twice as many uses.
  EXPECT_NE(error_of_stages(pattern,
                            cat(R"({"stage": "echo", "mode": "on_demand", "factor": 4}, )", three)),
            "");
  EXPECT_EQ(error_of_stages(pattern, cat(three, R"(, {"stage": "batch", "size": 2}, )", three)), "")
      << "copies of batches are numbered anew";
}

// A sample without an image to keep on the device is a bad record like any other.
TEST(Echo, WithDeviceAnImageThatDoesNotFitIsABadRecord) {
  TempDir dir;
  Json spec = spec_of(make_shards(dir, 1, 20, 8),
                      R"({"stage": "decode"}, {"stage": "map", "function": "lose"},
                         {"stage": "echo", "factor": 2, "device": true})");
  const pipeline::MapFunctions lose{{"lose", [](Item& item, uint64_t) {
                                       if (item.ordinal == 7) item.remove("image");
                                     }}};
  spec["on_error"] = "skip";
  Pipeline p(spec, lose, /*defers=*/true);
  EXPECT_EQ(trace_of_epoch(p).size(), 2 * 19u);
  const Json bad = p.bad_record_list();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0]["stage"], "echo");
  EXPECT_NE(bad[0]["reason"].get<std::string>().find("'image'"), std::string::npos);
}

TEST(Echo, EveryDrawHasAnOrderOfItsOwn) {
  TempDir dir;
  const std::string shards = make_shards(dir, 1, 60);
  const auto trace = [&](const std::string& draw) {
    Pipeline p(spec_of(shards,
                       R"({"stage": "echo", "factor": 3, "buffer": 30, "draw": ")" + draw + "\"}"));
    return trace_of_epoch(p);
  };
  std::set<Trace> all;
  for (const char* draw : {"spread", "least_used", "uniform", "newest"}) all.insert(trace(draw));
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(trace("default"), trace("uniform"));
}

TEST(Echo, EachEpochBeginsAnew) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 5), R"({"stage": "echo", "factor": 2.5, "buffer": 1})", "",
                     0, 3));
  const Trace first = trace_of_epoch(p);
  EXPECT_EQ(first.size(), 12u);
  for (int epoch = 1; epoch < 3; ++epoch) EXPECT_EQ(trace_of_epoch(p).size(), first.size());
}

// Each of a sample's copies counts as its part of the bytes, which they share.
TEST(Echo, CopiesInTheBufferCountTheirBytesOnce) {
  TempDir dir;
  const std::string shards = make_shards(dir, 1, 60);
  Item item;
  Pipeline one(spec_of(shards, R"({"stage": "take", "count": 1})"));
  ASSERT_EQ(one.next(item), Pipeline::Next::item);
  const auto run = [&](size_t bytes) {
    Pipeline p(spec_of(
        shards,
        cat(R"({"stage": "echo", "factor": 4, "buffer": 1000, "buffer_bytes": )", bytes, "}")));
    return trace_of_epoch(p).size();
  };
  EXPECT_EQ(run(2 * 60 * item.size_bytes()), 240u);
  EXPECT_THROW(run(60 * item.size_bytes() / 2), Error);
}

TEST(Echo, EveryDrawUsesAllCopies) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 200);
  std::map<std::string, double> mean_age;
  for (const std::string draw : {"least_used", "uniform", "newest"}) {
    Pipeline p(spec_of(
        pattern, R"({"stage": "echo", "factor": 3, "buffer": 120, "draw": ")" + draw + "\"}"));
    std::map<uint64_t, int> uses;
    double ages = 0;
    for (const auto& [ordinal, replica, age] : trace_of_epoch(p)) {
      ++uses[ordinal];
      EXPECT_GE(age, 0);
      ages += age;
    }
    EXPECT_EQ(uses.size(), 200u);
    for (const auto& [ordinal, count] : uses) EXPECT_EQ(count, 3) << draw;
    mean_age[draw] = ages / 600;
  }
  EXPECT_GT(mean_age["least_used"], 10);
  EXPECT_GT(mean_age["uniform"], 10);
  EXPECT_LT(mean_age["uniform"], 60) << "120 copies are 40 samples";
}

TEST(Echo, BatchesSayHowOldAndHowManyTheirSamplesAre) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 40);
  Pipeline side_by_side(spec_of(pattern, R"({"stage": "echo", "factor": 2, "buffer": 1})",
                                R"(, {"stage": "batch", "size": 8})"));
  for (Item item; side_by_side.next(item) == Pipeline::Next::item;) {
    EXPECT_EQ(item.batch.unique, 4);
    EXPECT_EQ(item.batch.mean_age, 0);
  }
  Pipeline mixed(spec_of(pattern, R"({"stage": "echo", "factor": 2, "buffer": 30})",
                         R"(, {"stage": "batch", "size": 8})"));
  double age = 0;
  for (Item item; mixed.next(item) == Pipeline::Next::item;) {
    EXPECT_GE(item.batch.unique, 4);
    EXPECT_LE(item.batch.unique, 8);
    age += item.batch.mean_age / 10;
  }
  EXPECT_GT(age, 4);
  EXPECT_LT(age, 20);
}

// Time per fresh example is max(t_upstream, e * t_downstream) (Choi et al. 2019). A busy machine
// can only add time, so the test checks this as a lower bound. tests/bench/echo_model.py shows how
// close runs come to it.
TEST(EchoTiming, NothingIsFasterThanTheModel) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 1000);
  constexpr double kUp = 0.003, kDown = 0.001;
  constexpr int kFresh = 150;
  for (const double factor : {1.0, 3.0, 5.0}) {
    Pipeline p(spec_of(
        pattern, R"({"stage": "echo", "factor": )" + std::to_string(factor) + R"(, "buffer": 20})",
        "", kUp * 1000));
    Item item;
    for (int i = 0; i < 40 * factor; ++i) p.next(item);  // skips the start, when the queues fill
    const int64_t begin = now_ns(), before = p.items_out(2);  // 2: the delay
    for (int i = 0; i < kFresh * factor; ++i) {
      std::this_thread::sleep_for(std::chrono::duration<double>(kDown));
      p.next(item);
    }
    const int64_t made = p.items_out(2) - before;
    const double seconds = seconds_between(begin, now_ns());
    // Samples that are in the queues when the clock starts took their time before that.
    const double upstream = 0.7 * kUp * static_cast<double>(made);
    EXPECT_GE(seconds, std::max(upstream, kFresh * factor * kDown)) << "factor " << factor;
    const Json consumer = p.stats()["consumer"];
    EXPECT_NEAR(consumer["echoed"].get<double>(), (factor - 1) * consumer["fresh"].get<double>(),
                20 * factor);
  }
}

}  // namespace
}  // namespace etr::test
