#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include "core/clock.h"
#include "core/error.h"
#include "support/data.h"
#include "support/eventually.h"

namespace etr::test {
namespace {

using pipeline::Item;
using pipeline::Pipeline;

Json spec_of(const std::string& pattern, const std::string& echo, const std::string& behind = "",
             double delay_ms = 0, int epochs = 1) {
  std::string stages = R"([{"stage": "webdataset", "pattern": ")" + pattern +
                       R"("}, {"stage": "label", "field": "txt"})";
  if (delay_ms > 0)
    stages += R"(, {"stage": "delay", "milliseconds": )" + std::to_string(delay_ms) + "}";
  return {{"seed", 2},
          {"epochs", epochs},
          {"stages", parse_json(stages + ", " + echo + behind + "]", "test")}};
}

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
  EXPECT_GE(distinct, 78u) << "of 80: with 1,250 possible crops a rare collision is luck";
  for (const auto& [ordinal, set] : replicas) EXPECT_EQ(set.size(), 4u);
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

// Behind `batch` whole batches are repeated: what was fresh in one is echoed in its copies, for every reader.
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
  EXPECT_GT(distance / 400, 60) << "copies of a sample lie far apart on average";
}

// Upstream gives a sample every 100 ms, and the consumer asks all the time: most of what it gets are echoes.
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
  EXPECT_GE(fresh, 16) << "each is used eight times at most";
  EXPECT_GT(echoed, fresh);
}

// A consumer that always finds a batch ready gets fresh samples.
TEST(OnDemandEcho, AFastUpstreamIsNotEchoed) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 4, 1000),
                     R"({"stage": "echo", "mode": "on_demand", "factor": 8})",
                     R"(, {"stage": "batch", "size": 8})"));
  const auto consume = [&](int batches) {
    for (Item item; batches > 0; --batches) {
      ASSERT_TRUE(eventually([&] { return p.stats()["consumer"]["ready"] >= 2; }));
      ASSERT_EQ(p.next(item), Pipeline::Next::item);
    }
  };
  ASSERT_TRUE(p.wait(60));
  consume(20);  // at the start there is nothing yet, and echoes fill in
  const Json before = p.stats()["consumer"];
  consume(40);
  const Json after = p.stats()["consumer"];
  const auto gained = [&](const char* key) {
    return after[key].get<int>() - before[key].get<int>();
  };
  EXPECT_GE(gained("fresh"), 290) << after.dump();
  EXPECT_LE(gained("echoed"), 30) << after.dump();
}

TEST(OnDemandEcho, TheCapHolds) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 60),
                     R"({"stage": "echo", "mode": "on_demand", "factor": 3})", "", 2));
  std::map<int32_t, int> uses;
  for (const int32_t n : labels_of_epoch(p)) ++uses[n];
  EXPECT_EQ(uses.size(), 60u);
  for (const auto& [n, count] : uses) EXPECT_LE(count, 3) << n;
}

using Trace = std::vector<std::tuple<uint64_t, uint32_t, double>>;  // ordinal, replica, age

// The rest of the epoch, with `step_s` spent on each item.
Trace trace_of_epoch(Pipeline& p, double step_s = 0, size_t limit = SIZE_MAX) {
  Trace trace;
  for (Item item; trace.size() < limit && p.next(item) == Pipeline::Next::item;) {
    trace.emplace_back(item.ordinal, item.replica, item.age);
    if (step_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(step_s));
  }
  return trace;
}

std::vector<Json> lines_of(const std::string& path) {
  std::vector<Json> rows;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) rows.push_back(parse_json(line, path));
  return rows;
}

// What it decides follows from what it measured, whatever else the machine does meanwhile.
TEST(AutoEcho, FollowsTheMeasuredTimes) {
  TempDir dir;
  const std::string log = dir.path("log");
  Pipeline p(spec_of(
      make_shards(dir, 2, 600),
      R"({"stage": "echo", "mode": "auto", "factor": 20, "buffer": 20, "log": ")" + log + "\"}", "",
      4));
  trace_of_epoch(p, 0.001);
  const auto rows = lines_of(log);
  ASSERT_GE(rows.size(), 2u) << "the start, and at least one change";
  EXPECT_EQ(rows.front()["value"], 1000);
  double most = 0;  // the last one may be of a moment when the consumer was kept waiting for a core
  for (size_t i = 1; i < rows.size(); ++i) {
    const double up = rows[i]["t_up_s"], down = rows[i]["t_down_s"];
    EXPECT_GE(up, 0.0035) << "the delay is a floor";
    EXPECT_NEAR(rows[i]["factor"].get<double>(), std::clamp(up / down, 1.0, 20.0),
                1e-3 * up / down);
    most = std::max(most, rows[i]["factor"].get<double>());
  }
  EXPECT_GT(most, 1);
}

TEST(AutoEcho, KeepsToItsCap) {
  TempDir dir;
  Pipeline p(spec_of(make_shards(dir, 1, 500),
                     R"({"stage": "echo", "mode": "auto", "factor": 2, "buffer": 1})", "", 3));
  std::map<uint64_t, int> uses;
  for (const auto& [ordinal, replica, age] : trace_of_epoch(p)) ++uses[ordinal];
  EXPECT_EQ(uses.size(), 500u);
  int repeated = 0;
  for (const auto& [ordinal, count] : uses) {
    EXPECT_LE(count, 2);
    repeated += count == 2;
  }
  EXPECT_GT(repeated, 100);
}

// The log of a run, replayed at another speed, gives the same run; also from a position in its midst.
TEST(EchoDecisions, AReplayIsTheSameRun) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 400);
  for (const std::string mode : {"auto", "on_demand"}) {
    const std::string log = dir.path(mode + ".jsonl");
    const std::string stage =
        R"({"stage": "echo", "mode": ")" + mode + R"(", "factor": 6, "buffer": 40, )";
    Pipeline first(spec_of(pattern, stage + "\"log\": \"" + log + "\"}", "", 2, 2));
    const Trace epochs[] = {trace_of_epoch(first, 0.0004), trace_of_epoch(first, 0.0004)};
    const auto echoes = [](const Trace& t) {
      return std::count_if(t.begin(), t.end(),
                           [](const auto& row) { return std::get<1>(row) > 0; });
    };
    EXPECT_GT(echoes(epochs[0]) + echoes(epochs[1]), 200) << mode;
    const Json again = spec_of(pattern, stage + "\"replay\": \"" + log + "\"}", "", 0.01, 2);
    Pipeline replayed(again);
    EXPECT_EQ(trace_of_epoch(replayed), epochs[0]) << mode;
    trace_of_epoch(replayed, 0, 100);
    Pipeline restored(again);
    restored.restore(parse_json(replayed.save().dump(), "state"));
    const Trace tail(epochs[1].begin() + 100, epochs[1].end());
    EXPECT_EQ(trace_of_epoch(replayed), tail) << mode;
    EXPECT_EQ(trace_of_epoch(restored), tail) << mode;
  }
}

TEST(EchoDecisions, AWrongLogIsNamed) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 10);
  const std::string log = dir.path("log.jsonl");
  std::ofstream(log) << "{\"epoch\": 0, \"after\": 1, \"value\": 2}\nnonsense\n";
  const auto error_of = [&](const std::string& options) -> std::string {
    try {
      Pipeline p(spec_of(pattern, R"({"stage": "echo", "factor": 2, )" + options + "}"));
      trace_of_epoch(p);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of(R"("mode": "auto", "replay": ")" + log + "\"").find("line 2"),
            std::string::npos);
  EXPECT_NE(error_of(R"("mode": "auto", "replay": "/no/such")").find("/no/such"),
            std::string::npos);
  EXPECT_NE(error_of(R"("log": ")" + log + "\"").find("fixed decides nothing"), std::string::npos);
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
        EXPECT_TRUE(replicas[ordinal].insert(replica).second) << "each replica has its own number";
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

// Time per fresh example is max(t_upstream, e * t_downstream) (Choi et al. 2019). A busy machine can only add time, so
// this is the lower bound; tests/bench/echo_model.py draws how close it comes.
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
    for (int i = 0; i < 40 * factor; ++i) p.next(item);  // past the filling of the queues
    const int64_t begin = now_ns();
    for (int i = 0; i < kFresh * factor; ++i) {
      std::this_thread::sleep_for(std::chrono::duration<double>(kDown));
      p.next(item);
    }
    const double seconds = seconds_between(begin, now_ns()) / kFresh;
    // What lies in the queues when the clock starts has been paid for.
    EXPECT_GE(seconds, std::max(kUp * 0.7, factor * kDown)) << "factor " << factor;
    const Json consumer = p.stats()["consumer"];
    EXPECT_NEAR(consumer["echoed"].get<double>(), (factor - 1) * consumer["fresh"].get<double>(),
                20 * factor);
  }
}

}  // namespace
}  // namespace etr::test
