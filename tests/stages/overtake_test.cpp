// Samples that overtake slower ones, and how their order is had again.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/parse_json.h"
#include "core/platform.h"
#include "support/data.h"

namespace etr::test {
namespace {

using pipeline::Item;
using pipeline::MapFunctions;
using pipeline::Pipeline;

// The function `work` stands in front of the stage.
Json spec_of(const std::string& shards, const std::string& options, const std::string& behind = "",
             const std::string& before = "") {
  return {{"seed", 2},
          {"threads", 4},
          {"epochs", 2},
          {"stages", parse_json(cat(R"([{"stage": "webdataset", "pattern": ")", shards,
                                    R"("}, {"stage": "label", "field": "txt"}, )", before,
                                    R"({"stage": "map", "function": "work"},
                                       {"stage": "overtake")",
                                    options, "}", behind, "]"),
                                "test")}};
}

// Some samples take long.
MapFunctions uneven_work() {
  return {{"work", [](Item& item, uint64_t epoch) {
             if ((item.ordinal * 7 + epoch) % 11 == 0)
               std::this_thread::sleep_for(std::chrono::milliseconds(4));
           }}};
}

std::vector<int32_t> labels(Pipeline& p, int count) {
  std::vector<int32_t> out;
  Item item;
  while (static_cast<int>(out.size()) < count && p.next(item) == Pipeline::Next::item)
    for (const int32_t label : pipeline::require_field(item, "label").view<int32_t>())
      out.push_back(label);
  return out;
}

std::vector<int32_t> sorted(std::vector<int32_t> of) {
  std::ranges::sort(of);
  return of;
}

std::vector<int32_t> numbers(int count) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < count; ++i) out.push_back(i);
  return out;
}

// Sample 5 is at work until the consumer has all that may overtake it.
TEST(Overtake, AsManyAsTheWindowGoInFrontOfASlowOne) {
  TempDir dir;
  std::mutex mutex;
  std::condition_variable changed;
  bool goes_on = false;
  const MapFunctions functions{{"work", [&](Item& item, uint64_t) {
                                  if (item.ordinal != 5) return;
                                  std::unique_lock lock(mutex);
                                  changed.wait(lock, [&] { return goes_on; });
                                }}};
  Pipeline p(spec_of(make_shards(dir, 1, 40), R"(, "window": 8)"), functions);
  std::set<int32_t> early;
  Item item;
  for (int i = 0; i < 5 + 8 && p.wait(60); ++i) {
    ASSERT_EQ(p.next(item), Pipeline::Next::item);
    early.insert(pipeline::require_field(item, "label").view<int32_t>()[0]);
  }
  EXPECT_EQ(early, (std::set<int32_t>{0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13}));
  {
    std::scoped_lock lock(mutex);
    goes_on = true;
  }
  changed.notify_all();
  EXPECT_EQ(labels(p, 1), std::vector<int32_t>{5});
  EXPECT_EQ(sorted(labels(p, 100)).size(), 26u);
}

TEST(Overtake, EpochsAndPassesStayApart) {
  TempDir dir;
  const std::string shards = make_shards(dir, 2, 30);
  Pipeline p(spec_of(shards, "", R"(, {"stage": "repeat", "count": 2})"), uneven_work());
  for (int epoch = 0; epoch < 2; ++epoch) {
    const std::vector<int32_t> all = labels(p, 1000);
    ASSERT_EQ(all.size(), 120u);
    for (const size_t pass : {0, 1})
      EXPECT_EQ(sorted({all.begin() + 60 * pass, all.begin() + 60 * (pass + 1)}), numbers(60));
  }
}

TEST(Overtake, ALogGivesTheSameRun) {
  TempDir dir;
  const std::string shards = make_shards(dir, 2, 60), log = dir.path("order.jsonl");
  const std::string batch = R"(, {"stage": "shuffle", "buffer": 7}, {"stage": "batch", "size": 5})";
  Pipeline first(spec_of(shards, cat(R"(, "log": ")", log, "\""), batch), uneven_work());
  const std::vector<int32_t> epochs[] = {labels(first, 1000), labels(first, 1000)};
  EXPECT_EQ(sorted(epochs[0]), numbers(120));
  EXPECT_NE(platform::read_file(log).find("\"sample\""), std::string::npos)
      << "nothing was overtaken";
  const Json again = spec_of(shards, cat(R"(, "replay": ")", log, "\""), batch);
  Pipeline same(again, uneven_work()), restored(again, uneven_work());
  EXPECT_EQ(labels(same, 1000), epochs[0]);
  EXPECT_EQ(labels(same, 40), std::vector(epochs[1].begin(), epochs[1].begin() + 40));
  restored.restore(parse_json(same.save().dump(), "state"));
  const std::vector<int32_t> tail(epochs[1].begin() + 40, epochs[1].end());
  EXPECT_EQ(labels(same, 1000), tail);
  EXPECT_EQ(labels(restored, 1000), tail);
}

TEST(Overtake, ARunWithoutOvertakingLeavesALog) {
  TempDir dir;
  const std::string shards = make_shards(dir, 1, 30), log = dir.path("order.jsonl");
  const MapFunctions even{{"work", [](Item&, uint64_t) {}}};
  const auto labels_with = [&](const std::string& file) {
    Json spec = spec_of(shards, cat(R"(, "window": 1, ")", file, "\": \"", log, "\""));
    spec["threads"] = 1;
    Pipeline p(spec, even);
    return labels(p, 1000);
  };
  const std::vector<int32_t> order = labels_with("log");
  EXPECT_EQ(labels_with("replay"), order);
}

// Restored anywhere a run has the samples that it has not had, and its log tells of all of it.
TEST(Overtake, PositionsKnowTheOrder) {
  TempDir dir;
  const std::string shards = make_shards(dir, 2, 60);
  for (const int stop : {5, 20, 60, 95, 115}) {
    const std::string log = dir.path(cat("order", stop, ".jsonl"));
    const std::string options = cat(R"(, "window": 20, "log": ")", log, "\"");
    const std::string batch = R"(, {"stage": "batch", "size": 5})";
    std::vector<int32_t> all;
    Json position;
    {
      Pipeline first(spec_of(shards, options, batch), uneven_work());
      all = labels(first, stop);
      position = parse_json(first.save().dump(), "state");
      labels(first, 10);  // what it logs behind the position does not count
    }
    Pipeline restored(spec_of(shards, options, batch), uneven_work());
    restored.restore(position);
    const std::vector<int32_t> tail = labels(restored, 1000), next = labels(restored, 1000);
    all.insert(all.end(), tail.begin(), tail.end());
    EXPECT_EQ(sorted(all), numbers(120)) << stop;
    EXPECT_EQ(sorted(next), numbers(120)) << stop;
    Pipeline replayed(spec_of(shards, cat(R"(, "window": 20, "replay": ")", log, "\""), batch),
                      uneven_work());
    EXPECT_EQ(labels(replayed, 1000), all) << stop;
    EXPECT_EQ(labels(replayed, 1000), next) << stop;
  }
}

// Samples that a filter drops among them: the way to a position is found without them.
TEST(Overtake, GoesAroundDroppedSamples) {
  TempDir dir;
  const std::string shards = make_shards(dir, 2, 60);
  MapFunctions functions = uneven_work();
  const std::string filter = R"({"stage": "filter", "field": "label", "min": 10, "max": 99}, )";
  Json spec = spec_of(shards, "", "", filter);
  spec["on_error"] = "skip";
  functions["work"] = [work = functions["work"]](Item& item, uint64_t epoch) {
    work(item, epoch);
    const int32_t label = pipeline::require_field(item, "label").view<int32_t>()[0];
    if (label % 9 == 0) fail(Code::invalid_argument, "bad");  // ten of those that are left
  };
  for (const int stop : {12, 37, 70}) {
    Pipeline first(spec, functions);
    std::vector<int32_t> all = labels(first, stop);
    Pipeline restored(spec, functions);
    restored.restore(parse_json(first.save().dump(), "state"));
    const std::vector<int32_t> tail = labels(restored, 1000);
    all.insert(all.end(), tail.begin(), tail.end());
    EXPECT_EQ(all.size(), 80u) << stop;
    EXPECT_EQ(std::set<int32_t>(all.begin(), all.end()).size(), 80u) << stop;
  }
}

TEST(Overtake, MistakesAreNamed) {
  TempDir dir;
  const std::string shards = make_shards(dir, 1, 40);
  const auto error_of = [&](const Json& spec) -> std::string {
    try {
      Pipeline p(spec, uneven_work());
      labels(p, 1000);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(error_of(spec_of(shards, "", "", R"({"stage": "echo", "factor": 2}, )")),
      "stands behind 'echo', which repeats samples");
  has(error_of(spec_of(shards, R"(}, {"stage": "overtake")")), "there is none between it and");
  Json substituting = spec_of(shards, "");
  substituting["on_error"] = "substitute";
  has(error_of(substituting), "does not go with the error policy 'substitute'");
  const std::string log = dir.path("log.jsonl");
  const auto replay = [&](const std::string& lines) {
    std::ofstream(log) << lines;
    return error_of(spec_of(shards, cat(R"(, "window": 9, "replay": ")", log, "\"")));
  };
  has(replay("{\"epoch\": 0, \"after\": 3, \"sample\": 5}\nnonsense\n"), "line 2");
  has(replay("{\"epoch\": 0, \"after\": 3, \"sample\": 30}\n"),
      "lets sample 30 overtake more than 9 others");
  has(error_of(spec_of(shards, R"(, "replay": "/no/such")")), "/no/such");
}

}  // namespace
}  // namespace etr::test
