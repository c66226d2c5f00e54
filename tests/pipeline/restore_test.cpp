// Saving a position, and continuing from it in a new pipeline.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <future>
#include <mutex>

#include "core/error.h"
#include "core/packed.h"
#include "core/text.h"
#include "pipeline/flow.h"
#include "pipeline/position_match.h"
#include "pipeline/position_notes.h"
#include "pipeline/replay.h"
#include "support/changed_json.h"
#include "support/child.h"
#include "support/data.h"
#include "support/eventually.h"
#include "support/sanitized.h"

namespace etr::test {
namespace {

using pipeline::Item;
using pipeline::Pipeline;

Json restorable_spec(const std::string& pattern, const std::string& stages, int threads = 2) {
  return {{"seed", 5},
          {"threads", threads},
          {"on_error", "skip"},
          {"stages", parse_json(R"([{"stage": "webdataset", "pattern": ")" + pattern + R"("},
              {"stage": "label", "field": "txt"})" +
                                    stages + "]",
                                "test")}};
}

// Reads `items` items over as many epochs as it takes, saves, and compares the tails of this run
// and of a restored one, over two more epochs.
void expect_same_tail(const Json& spec, int items, const pipeline::MapFunctions& functions = {}) {
  SCOPED_TRACE("after " + std::to_string(items) + " items of " + spec["stages"].dump());
  Pipeline original(spec, functions);
  Item item;
  for (int n = 0; n < items;) n += original.next(item) == Pipeline::Next::item;
  // As text, as in a checkpoint.
  const Json state = parse_json(original.save().dump(), "state");
  std::vector<uint64_t> tail;
  for (int epoch = 0; epoch < 3; ++epoch) tail.push_back(digest_of_epoch(original));
  Pipeline restored(spec, functions);
  restored.restore(state);
  for (const uint64_t digest : tail) EXPECT_EQ(digest_of_epoch(restored), digest);
}

constexpr const char* kStages[] = {
    "",
    R"(, {"stage": "decode"}, {"stage": "flip"}, {"stage": "batch", "size": 8})",
    R"(, {"stage": "shuffle", "buffer": 33}, {"stage": "decode"}, {"stage": "batch", "size": 8})",
    R"(, {"stage": "decode"}, {"stage": "echo", "factor": 2.5, "buffer": 40},
       {"stage": "random_crop", "pad": 2}, {"stage": "batch", "size": 8})",
    R"(, {"stage": "take", "count": 37}, {"stage": "repeat", "count": 2},
       {"stage": "shuffle", "buffer": 10}, {"stage": "decode"},
       {"stage": "batch", "size": 8, "drop_remainder": false}, {"stage": "echo", "factor": 2})",
    R"(, {"stage": "keep", "fields": "label"}, {"stage": "shuffle", "buffer": 10},
       {"stage": "take", "count": 22},
       {"stage": "repeat", "count": 3}, {"stage": "batch", "size": 8})",
    R"(, {"stage": "keep", "fields": "label"},
       {"stage": "echo", "factor": 2.5, "buffer": 10}, {"stage": "take", "count": 22},
       {"stage": "repeat", "count": 3}, {"stage": "batch", "size": 8})",
};

TEST(Restore, GivesTheSameTail) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 3, 40, 8);
  for (const char* stages : kStages)
    for (const int items : {0, 1, 5, 14}) expect_same_tail(restorable_spec(pattern, stages), items);
}

// However much of an epoch was read before it was ended, the next ones are the same.
TEST(Restore, AnEpochThatWasEndedEarlyChangesNoneOfTheNext) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 3, 40, 8);
  std::vector<std::string> all(std::begin(kStages), std::end(kStages));
  all.push_back(R"(, {"stage": "bucket", "field": "png", "boundaries": [70, 75], "size": 8},
                     {"stage": "keep", "fields": "label"}, {"stage": "batch", "size": 8})");
  for (const std::string& stages : all)
    for (const int items : {0, 1, 5}) {
      SCOPED_TRACE("after " + std::to_string(items) + " items of " + stages);
      const Json spec = restorable_spec(pattern, stages);
      Pipeline whole(spec), ended(spec);
      digest_of_epoch(whole);
      const uint64_t second = digest_of_epoch(whole), third = digest_of_epoch(whole);
      Item item;
      for (int n = 0; n < items; ++n) ASSERT_EQ(ended.next(item), Pipeline::Next::item);
      ended.end_epoch();
      EXPECT_EQ(ended.epoch(), 1u);
      EXPECT_FALSE(ended.within_epoch());
      const Json state = parse_json(ended.save().dump(), "state");
      EXPECT_EQ(digest_of_epoch(ended), second);
      EXPECT_EQ(digest_of_epoch(ended), third);
      Pipeline restored(spec);
      restored.restore(state);
      EXPECT_EQ(digest_of_epoch(restored), second);
      Pipeline twice(spec);  // a restored run ends the epoch in which it begins
      for (int n = 0; n < items; ++n) twice.next(item);
      Pipeline again(spec);
      again.restore(twice.save());
      again.end_epoch();
      EXPECT_EQ(digest_of_epoch(again), second);
    }
}

// A restored run is saved again in the same epoch. Some samples were bad before the first save, and
// some after it.
TEST(Restore, GoesOnFromARestoredRun) {
  TempDir dir;
  Json spec =
      restorable_spec(make_shards(dir, 2, 60),
                      R"(, {"stage": "shuffle", "buffer": 7}, {"stage": "batch", "size": 4})");
  spec["stages"][1]["classes"] = 41;  // labels above 40 are bad
  std::vector<uint64_t> tails;
  Item item;
  Pipeline original(spec);
  for (int n = 0; n < 15; ++n) original.next(item);
  Pipeline second(spec);
  second.restore(original.save());
  for (int n = 0; n < 2; ++n) {
    original.next(item);
    second.next(item);
  }
  Pipeline third(spec);
  third.restore(second.save());
  const uint64_t tail = digest_of_epoch(original);
  EXPECT_EQ(digest_of_epoch(second), tail);
  EXPECT_EQ(digest_of_epoch(third), tail);
}

// Until something is read, save() returns the restored position, even if the replay to it has
// begun.
TEST(Restore, GivesThePositionBackUntilSomethingIsRead) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 30);
  for (const char* mixes :
       {R"("shuffle", "buffer": 9)", R"("bucket", "field": "cls", "boundaries": [2], "size": 4)"})
    for (const int items : {1, 25}) {
      const Json spec =
          restorable_spec(pattern, cat(R"(, {"stage": "repeat", "count": 2}, {"stage": )", mixes,
                                       R"(}, {"stage": "batch", "size": 1})"));
      Pipeline original(spec);
      digest_of_epoch(original, items);
      const Json state = original.save();
      Pipeline second(spec);
      second.restore(state);
      EXPECT_EQ(second.save(), state);
      second.wait(60);
      EXPECT_EQ(second.save(), state);
      Pipeline third(spec);
      third.restore(second.save());
      EXPECT_EQ(digest_of_epoch(third, 1), digest_of_epoch(original, 1));
      EXPECT_EQ(third.save()["delivered"], items + 1);
      EXPECT_EQ(digest_of_epoch(third), digest_of_epoch(original));
    }
}

// What comes before the position is read again, as `bucket` depends on the samples' content. Until
// that is over, next() blocks, and wait() must say so.
TEST(Restore, WaitsForWhatComesAfterThePosition) {
  TempDir dir;
  Json spec = restorable_spec(make_shards(dir, 1, 60), R"(, {"stage": "map", "function": "gate"},
      {"stage": "bucket", "field": "cls", "boundaries": [2], "size": 2})");
  spec["queue_items"] = 4;
  spec["epochs"] = 1;  // the first pipeline then leaves the threads to the second
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t held = UINT64_MAX;  // the sample that does not pass, nor do those behind it
  const pipeline::MapFunctions functions{{"gate", [&](Item& item, uint64_t) {
                                            std::unique_lock lock(mutex);
                                            changed.wait(lock,
                                                         [&] { return item.ordinal != held; });
                                          }}};
  const auto hold = [&](uint64_t sample) {
    std::scoped_lock lock(mutex);
    held = sample;
    changed.notify_all();
  };
  Pipeline original(spec, functions);
  Item item, expected;
  for (int n = 0; n < 20; ++n) original.next(item);
  const Json state = original.save();
  original.next(expected);
  labels_of_epoch(original);
  Pipeline restored(spec, functions);
  restored.restore(state);
  hold(0);
  EXPECT_FALSE(restored.wait(0));
  hold(10);
  EXPECT_TRUE(eventually([&] { return restored.stats()["consumer"]["ready"].get<int>() > 0; }));
  EXPECT_FALSE(restored.wait(0)) << "what there is comes before the position";
  hold(UINT64_MAX);
  EXPECT_TRUE(restored.wait(300));
  EXPECT_EQ(restored.next(item), Pipeline::Next::item);
  EXPECT_EQ(item.ordinal, expected.ordinal);
}

// Here it is the source that finds records bad.
TEST(Restore, PassesRecordsThatTheSourceFoundBad) {
  TempDir dir;
  std::string lines;
  for (int i = 0; i < 200; ++i)
    lines += i % 9 == 4 ? "{\n" : R"({"x": )" + std::to_string(i) + "}\n";
  std::ofstream(dir.path("a.jsonl")) << lines;
  const Json spec{{"seed", 5},
                  {"on_error", "skip"},
                  {"stages",
                   {{{"stage", "jsonl"}, {"pattern", dir.path("a.jsonl")}, {"columns", "x:f32"}},
                    {{"stage", "shuffle"}, {"buffer", 11}},
                    {{"stage", "batch"}, {"size", 4}}}}};
  for (const int items : {1, 3, 20, 40}) expect_same_tail(spec, items);
}

TEST(Restore, CrossesEpochs) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 20, 8);
  for (const char* stages : kStages) expect_same_tail(restorable_spec(pattern, stages), 23);
}

TEST(Restore, RepeatsWhatAnOnDemandNodeDid) {
  TempDir dir;
  const Json spec = restorable_spec(make_shards(dir, 1, 600, 8),
                                    R"(, {"stage": "delay", "milliseconds": 1}, {"stage": "decode"},
                                {"stage": "echo", "mode": "on_demand", "factor": 4},
                                {"stage": "random_crop", "pad": 2}, {"stage": "batch", "size": 4})");
  for (const uint64_t epoch : {0, 1}) {
    SCOPED_TRACE(epoch);
    Pipeline original(spec);
    if (epoch > 0) {
      digest_of_epoch(original, 5);
      original.end_epoch();
    }
    const uint64_t head = digest_of_epoch(original, 20);
    const Json state = original.save();
    EXPECT_EQ(state["epoch"], epoch);
    EXPECT_GT(original.stats()["consumer"]["echoed"].get<int>(), 0);
    // From the beginning with the same decisions, the first batches are the same.
    Json from_start = state;
    from_start["delivered"] = 0;
    Pipeline repeated(spec);
    repeated.restore(from_start);
    EXPECT_EQ(digest_of_epoch(repeated, 20), head);
    // From the position, the run continues with the samples that were still held.
    Pipeline restored(spec);
    restored.restore(state);
    Item item;
    ASSERT_EQ(restored.next(item), Pipeline::Next::item);
    EXPECT_FALSE(item.ghost);
  }
}

TEST(Restore, NumbersSamplesAlikeAcrossBadRecords) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 30);
  Json spec = restorable_spec(
      pattern, R"(, {"stage": "shuffle", "buffer": 7}, {"stage": "batch", "size": 4})");
  spec["stages"][1]["classes"] = 41;  // labels above 40 are bad
  expect_same_tail(spec, 6);
  spec.update({{"rank", 1}, {"world_size", 2}});
  expect_same_tail(spec, 4);
}

// Of the copies that an echo node makes, some are dropped and others are not: by a function, as bad
// records of one, and because they do not fit into their batch.
TEST(Restore, DropsTheCopiesThatWereDropped) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 60);
  const pipeline::MapFunctions functions{
      {"drop",
       [](Item& item, uint64_t) { item.dropped = item.replica == 1 && item.ordinal % 3 == 0; }},
      {"fail",
       [](Item& item, uint64_t) {
         if (item.replica == 0 && item.ordinal % 5 == 1) fail(Code::corrupt_data, "a bad copy");
       }},
      {"grow", [](Item& item, uint64_t) {
         const bool odd = item.replica == 1 && item.ordinal % 3 == 1;
         Tensor grown(DType::i32, {odd ? 2 : 1});
         std::ranges::fill(grown.mutable_view<int32_t>(), 7);
         item.set("grown", std::move(grown));
       }}};
  for (const char* name : {"drop", "fail", "grow"})
    for (const char* echo : {R"("mode": "together", "factor": 2)", R"("factor": 3, "buffer": 20)"})
      for (const int items : {1, 2, 9, 40})
        expect_same_tail(restorable_spec(pattern, cat(R"(, {"stage": "echo", )", echo,
                                                      R"(}, {"stage": "map", "function": ")", name,
                                                      R"("}, {"stage": "batch", "size": 4})")),
                         items, functions);
}

// Batches that begin with copies of the same sample are dropped one by one, and so are a batch's
// copies.
TEST(Restore, DropsTheBatchesThatWereDropped) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 60);
  const pipeline::MapFunctions functions{
      {"number",
       [](Item& item, uint64_t) {
         Tensor copy(DType::i32, {1});
         copy.mutable_view<int32_t>()[0] = static_cast<int32_t>(item.replica);
         item.set("copy", std::move(copy));
       }},
      {"drop",
       [](Item& batch, uint64_t) {
         const int32_t first = batch.find("copy")->view<int32_t>()[0];
         batch.dropped = first == 2 && batch.replica != 1 && batch.ordinal % 4 != 0;
       }},
      {"drop_copy", [](Item& batch, uint64_t) {
         batch.dropped = batch.replica == 1 && batch.ordinal % 3 != 0;
       }}};
  const std::string batches =
      R"(, {"stage": "echo", "mode": "together", "factor": 3},
          {"stage": "map", "function": "number"}, {"stage": "batch", "size": 2},)";
  const std::string again = R"({"stage": "echo", "mode": "together", "factor": 2},)";
  const std::string drop = R"({"stage": "map", "function": "drop"})",
                    drop_copy = R"({"stage": "map", "function": "drop_copy"})";
  for (const std::string& stages :
       {batches + drop, batches + again + drop, batches + again + drop_copy,
        batches + drop + "," + again + drop_copy})
    for (const int items : {1, 2, 9, 40})
      expect_same_tail(restorable_spec(pattern, stages), items, functions);
}

// Positions of earlier versions name only the samples of dropped copies. All copies of these are
// passed over, also by a run that goes on from a later position of the restored one.
TEST(Restore, PositionsThatDoNotTellCopiesApartLoad) {
  TempDir dir;
  const Json spec =
      restorable_spec(make_shards(dir, 2, 60), R"(, {"stage": "echo", "factor": 3, "buffer": 20},
          {"stage": "filter", "field": "label", "min": 30}, {"stage": "batch", "size": 4})");
  Pipeline original(spec);
  digest_of_epoch(original, 20);
  Json state = original.save();
  for (int more = 0; more < 30 && !state.contains("dropped_copies"); ++more) {
    digest_of_epoch(original, 1);  // until the filter is ahead of the consumer
    state = original.save();
  }
  ASSERT_TRUE(state.contains("dropped_copies"));
  const auto copies = unpack_numbers(state["dropped_copies"]["3"].get<std::string>());
  std::vector<uint64_t> samples;
  for (size_t i = 0; i < copies.size(); i += 2) samples.push_back(copies[i]);
  state["drops"]["3"] = pack_numbers(samples);
  state.erase("dropped_copies");
  Pipeline second(spec);
  second.restore(state);
  EXPECT_EQ(digest_of_epoch(original, 5), digest_of_epoch(second, 5));
  Pipeline third(spec);
  third.restore(parse_json(second.save().dump(), "state"));
  const uint64_t tail = digest_of_epoch(original);
  EXPECT_EQ(digest_of_epoch(second), tail);
  EXPECT_EQ(digest_of_epoch(third), tail);
}

TEST(Restore, DecodesOnlyWhatIsStillNeeded) {
  TempDir dir;
  Json spec = restorable_spec(make_shards(dir, 1, 200, 8),
                              R"(, {"stage": "decode"}, {"stage": "batch", "size": 4})");
  spec["epochs"] = 1;
  for (const int batches : {1, 40}) {
    Pipeline original(spec);
    digest_of_epoch(original, batches);
    Pipeline restored(spec);
    restored.restore(original.save());
    digest_of_epoch(restored);
    const Json stats = restored.stats();
    const int left = 200 - 4 * batches;  // samples
    for (const Json& stage : stats["stages"]) {
      if (stage["name"] != "decode") continue;
      EXPECT_LE(stage["items_in"].get<int>(), left);
      EXPECT_LE(stats["stages"][0]["items_in"].get<int>(), left + 1)
          << "the source skips the others";
    }
    EXPECT_EQ(stats["consumer"]["items"], 50 - batches);
  }
}

std::string refusal(const Json& spec, const Json& state) {
  try {
    Pipeline(spec).restore(state);
    return "accepted";
  } catch (const Error& error) {
    return error.what();
  }
}

// The same after a change to what the position says about the data.
std::string refusal_with_data(const Json& spec, Json state,
                              const std::function<void(Json&)>& change) {
  change(state["data"]);
  return refusal(spec, state);
}

void expect_has(const std::string& text, const char* part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Restore, SaysInWhatPipelinesDiffer) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 10, 8);
  const Json spec = restorable_spec(pattern, kStages[1]);
  const Json state = Pipeline(spec).save();
  const auto changed = [&](const std::function<void(Json&)>& change) {
    Json other = spec;
    change(other);
    return refusal(other, state);
  };
  const std::pair<std::string, std::function<void(Json&)>> cases[] = {
      {"accepted", [](Json&) {}},
      {"accepted", [](Json& s) { s["threads"] = 1; }},
      {"the seed was 5 and is 6", [](Json& s) { s["seed"] = 6; }},
      {"it had 5 stages and has 4", [](Json& s) { s["stages"].erase(4); }},
      {"stage 4 was 'flip' and is 'grayscale'",
       [](Json& s) {
         s["stages"][3] = {{"stage", "grayscale"}};
       }},
      {"stage 5 ('batch'): 'size' was 8 and is 9", [](Json& s) { s["stages"][4]["size"] = 9; }},
      {"stage 1 ('webdataset'): 'shuffle_shards' was true and is false",
       [](Json& s) { s["stages"][0]["shuffle_shards"] = false; }},
  };
  for (const auto& [message, change] : cases)
    EXPECT_NE(changed(change).find(message), std::string::npos) << changed(change);
}

// If a position lacks an option, because its version did not have it, the default counts.
TEST(Restore, PositionsOfVersionsWithFewerOptionsLoad) {
  TempDir dir;
  const Json spec = restorable_spec(make_shards(dir, 2, 10, 8), kStages[1]);
  Json state = Pipeline(spec).save();
  state["pipeline"]["stages"][4]["batch"].erase("drop_remainder");
  EXPECT_EQ(refusal(spec, state), "accepted");
  Json other = spec;
  other["stages"][4]["drop_remainder"] = false;
  EXPECT_NE(refusal(other, state).find("'drop_remainder' was true and is false"),
            std::string::npos);
}

TEST(Restore, RefusesPositionsWithOptionsThatItDoesNotKnow) {
  TempDir dir;
  const Json spec = restorable_spec(make_shards(dir, 2, 10, 8), kStages[1]);
  Json state = Pipeline(spec).save();
  state["pipeline"]["stages"][4]["batch"]["new_option"] = 3;
  EXPECT_NE(refusal(spec, state).find("'new_option' was 3 and is not set"), std::string::npos)
      << refusal(spec, state);
}

// Which noted no more of the data than where it lay.
TEST(Restore, PositionsOfEarlierVersionsBelongToTheirPlace) {
  TempDir dir, elsewhere;
  const Json spec = restorable_spec(make_shards(dir, 2, 10, 8), kStages[1]);
  const Json moved = restorable_spec(make_shards(elsewhere, 2, 10, 8), kStages[1]);
  Json state = Pipeline(spec).save();
  EXPECT_EQ(refusal(moved, state), "accepted");
  state.erase("data");
  EXPECT_EQ(refusal(spec, state), "accepted");
  EXPECT_NE(refusal(moved, state).find("the position was saved by an earlier version"),
            std::string::npos)
      << refusal(moved, state);
  Json other = spec;
  other["stages"][4]["size"] = 9;
  EXPECT_NE(refusal(other, state).find("'size' was 8 and is 9"), std::string::npos);
}

// Nothing is held there, so it does not matter whose position it is.
TEST(Restore, PositionsBetweenEpochsNeedNoRank) {
  TempDir dir;
  const Json spec = restorable_spec(make_shards(dir, 2, 10, 8), kStages[1]);
  Pipeline original(spec);
  digest_of_epoch(original);
  Json state = original.save();
  for (const char* key : {"rank", "world"}) state.erase(key);
  Pipeline restored(spec);
  restored.restore(state);
  EXPECT_EQ(digest_of_epoch(restored), digest_of_epoch(original));
}

// A source of sources: of two shards, and of ten lines.
Json nested_spec(const TempDir& dir) {
  const Json shards{{"stage", "webdataset"}, {"pattern", make_shards(dir, 2, 10)}};
  std::ofstream(dir.path("lines.txt")) << "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n";
  const Json lines = {{{"stage", "text_lines"}, {"pattern", dir.path("lines.txt")}},
                      {{"stage", "keep"}, {"fields", "text"}}};
  return {
      {"seed", 5},
      {"stages",
       Json::array({{{"stage", "mix"},
                     {"sources", {{{"stage", "interleave"}, {"sources", {shards}}}, lines}}}})}};
}

// As sources of a pipeline do.
TEST(Restore, NestedSourcesMayHaveMoved) {
  TempDir dir, elsewhere;
  const Json spec = nested_spec(dir), moved = nested_spec(elsewhere);
  Pipeline original(spec);
  digest_of_epoch(original, 7);
  const Json state = parse_json(original.save().dump(), "state");
  Pipeline restored(moved);
  restored.restore(state);
  EXPECT_EQ(digest_of_epoch(restored), digest_of_epoch(original));
  const Json::json_pointer shards("/stages/0/sources/0/sources/0"), lines("/stages/0/sources/1");
  const auto changed = [&](const std::function<void(Json&)>& change) {
    Json other = moved;
    change(other);
    return refusal(other, state);
  };
  // The same as not set.
  EXPECT_EQ(changed([&](Json& s) { s[shards]["shuffle_shards"] = true; }), "accepted");
  for (const auto& change : std::initializer_list<std::function<void(Json&)>>{
           [&](Json& s) { s[shards]["shuffle_shards"] = false; },
           [&](Json& s) { s[lines][0]["skip_empty"] = false; },
           [&](Json& s) { s[lines].erase(1); }})
    EXPECT_NE(changed(change).find("stage 1 ('mix'): 'sources' was "), std::string::npos)
        << changed(change);
  Json without_data = state;
  without_data.erase("data");
  EXPECT_EQ(refusal(spec, without_data), "accepted");
  EXPECT_NE(refusal(moved, without_data).find("the position was saved by an earlier version"),
            std::string::npos);
}

TEST(Restore, PositionsMayHaveAnOptionsFormerName) {
  TempDir dir;
  const Json spec = nested_spec(dir);
  Json state = Pipeline(spec).save();
  Json& mix = state["pipeline"]["stages"][0]["mix"];
  mix.erase("stop_when");
  for (const auto& [ends, said] :
       {std::pair("all", "accepted"),
        {"first", R"(stage 1 ('mix'): 'stop_when' was "first" and is "all")"}}) {
    mix["ends"] = ends;
    EXPECT_NE(refusal(spec, state).find(said), std::string::npos) << refusal(spec, state);
  }
}

TEST(Restore, SaysWhichNestedSourceHasOtherData) {
  TempDir dir;
  const Json spec = nested_spec(dir), state = Pipeline(spec).save();
  const auto with_data = [&](const std::function<void(Json&)>& change) {
    return refusal_with_data(spec, state, change);
  };
  EXPECT_EQ(with_data([](Json&) {}), "accepted");
  expect_has(with_data([](Json& d) { d[1]["files"][0][0] = "other.txt"; }),
             "another data set: source 2: 'other.txt' is missing");
  expect_has(with_data([](Json& d) { d[0][0]["files"][1][1] = 7; }),
             "another data set: source 1: source 1: '");
  expect_has(with_data([](Json& d) { d.erase(1); }), "another data set: it was [");
  expect_has(with_data([](Json& d) { d = Json::object(); }),
             "another data set: it was {} and is [");
}

// By which studies know their jobs.
TEST(Restore, SpecsWithoutPathsAreAlikeWhereverTheDataIs) {
  TempDir dir, elsewhere;
  Json spec = nested_spec(dir), moved = nested_spec(elsewhere);
  moved["bad_records_file"] = elsewhere.path("bad.jsonl");
  const Json bare = pipeline::spec_without_paths(spec);
  EXPECT_EQ(bare, pipeline::spec_without_paths(moved));
  EXPECT_EQ(bare.dump().find(dir.path("")), std::string::npos) << bare;
  moved["stages"][0]["sources"][1][0]["skip_empty"] = false;
  EXPECT_NE(bare, pipeline::spec_without_paths(moved));
  Json wrong = bare;  // the pipeline refuses it
  wrong["stages"][0]["stage"] = 3;
  EXPECT_EQ(pipeline::spec_without_paths(wrong), wrong);
}

TEST(Restore, RefusesShardsThatCameGoOrChangedPlaces) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 10);
  const Json spec = restorable_spec(pattern, "");
  const Json state = Pipeline(spec).save();
  const auto with_data = [&](const std::function<void(Json&)>& change) {
    return refusal_with_data(spec, state, change);
  };
  expect_has(with_data([](Json& d) {
               d["files"].push_back({"more.tar", 3});
             }),
             "'more.tar' is missing");
  expect_has(with_data([](Json& d) { d["files"].erase(1); }), "' is new");
  expect_has(with_data([](Json& d) { std::swap(d["files"][0], d["files"][1]); }), "file 1 was '");
  expect_has(with_data([](Json& d) { d["files"][0][1] = 7; }), "had 7 bytes and has ");
  expect_has(with_data([](Json& d) { d["files"].push_back(d["files"][0]); }),
             "had 3 files and has 2");
  // Of many files, only their number, their bytes and a digest of names and sizes are kept.
  expect_has(with_data([](Json& d) { d.erase("files"), d["count"] = 3; }),
             "it had 3 files and has 2");
  expect_has(with_data([](Json& d) { d.erase("files"), d["bytes"] = 3; }),
             "it had 3 bytes and has ");
  expect_has(with_data([](Json& d) { d.erase("files"), d["digest"] = 3; }), "other names or sizes");
}

// Whatever is wrong in a position, restore() accepts it or throws Error, but does not crash.
TEST(Restore, DamagedPositionsAreErrors) {
  TempDir dir;
  const Json spec = restorable_spec(make_shards(dir, 1, 10, 8), kStages[1]);
  const Json state = Pipeline(spec).save().flatten();
  for (const auto& [path, unused] : state.items())
    for (const Json& value :
         {Json(nullptr), Json(-1), Json("x"), Json::array({1}), Json{{"x", 1}}}) {
      Json damaged = state;
      damaged[path] = "here";
      damaged = damaged.unflatten();
      damaged[Json::json_pointer(path)] = value;
      if (damaged != state.unflatten()) refusal(spec, damaged);  // throws nothing but Error
    }
  for (const char* stages : {"3", "[3]", "[[]]", "[{}]", "{}", R"([{"webdataset": 3}])"}) {
    Json damaged = state.unflatten();
    damaged["pipeline"]["stages"] = Json::parse(stages);
    const std::string said = refusal(spec, damaged);
    EXPECT_NE(said, "accepted") << stages;
    if (*stages != '[') {
      EXPECT_NE(said.find(cat("'stages' is ", stages, ", not a list")), std::string::npos) << said;
    }
  }
}

// Its stages and notes would hold what belongs to the first position, too.
TEST(Restore, OncePerPipeline) {
  TempDir dir;
  const Json spec =
      restorable_spec(make_shards(dir, 2, 30),
                      R"(, {"stage": "shuffle", "buffer": 7}, {"stage": "batch", "size": 4})");
  Pipeline original(spec);
  digest_of_epoch(original, 6);
  const Json first = original.save();
  digest_of_epoch(original, 3);
  const Json second = original.save();
  const uint64_t tail = digest_of_epoch(original);
  Pipeline other(spec);
  EXPECT_THROW(other.restore(Json::object()), Error) << "what is refused has no effect";
  other.restore(second);
  try {
    other.restore(first);
    ADD_FAILURE() << "restored twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::state);
    EXPECT_STREQ(error.what(),
                 "the pipeline was given a position already: create another for this one");
  }
  EXPECT_EQ(digest_of_epoch(other), tail);
}

TEST(Restore, RefusesAnotherPipelinesState) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 10);
  Pipeline a(restorable_spec(pattern, "")),
      b(restorable_spec(pattern, R"(, {"stage": "batch", "size": 2})"));
  EXPECT_THROW(b.restore(a.save()), Error);
  for (const Json& other : {Json::object(), Json{{"epoch", 1}}, Json(3)})
    EXPECT_EQ(error_text([&] { b.restore(other); }), "this is not the saved state of a pipeline");
  Item item;
  a.next(item);
  EXPECT_THROW(a.restore(a.save()), Error) << "reading has begun";
}

// The position after many of a million samples stays small, although a filter drops three in seven.
TEST(Restore, AMillionSamplesAreASmallState) {
  TempDir dir;
  constexpr int kSamples = kSanitized ? 100'000 : 1'000'000;
  std::string csv;
  for (int i = 0; i < kSamples; ++i) csv += static_cast<char>('0' + i % 7);
  std::ofstream(dir.path("t"), std::ios::binary) << csv;
  const Json spec{
      {"seed", 1},
      {"stages",
       {{{"stage", "text_windows"}, {"pattern", dir.path("t")}, {"length", 1}, {"stride", 1}},
        {{"stage", "filter"}, {"field", "input"}, {"max", 51}},
        {{"stage", "shuffle"}, {"buffer", 10000}},
        {{"stage", "batch"}, {"size", 100}}}}};
  Pipeline original(spec);
  digest_of_epoch(original, kSamples / 200);
  const Json state = original.save();
  EXPECT_GT(state.dump().size(), 1000u) << "dropped samples are in it";
  EXPECT_LT(state.dump().size(), 1'000'000u);
  Pipeline restored(spec);
  restored.restore(state);
  EXPECT_EQ(digest_of_epoch(original), digest_of_epoch(restored));
}

// Positions that no pipeline saves ----------------------------------------------------------------

// Returns a spec with a source of 60 samples, whose number is known in advance.
Json idx_spec(const TempDir& dir) {
  std::ofstream(dir.path("images"), std::ios::binary)
      << std::string("\0\0\x08\x03\0\0\0\x3c\0\0\0\1\0\0\0\1", 16) << std::string(60, 'x');
  return {{"threads", 2},
          {"stages",
           {{{"stage", "idx"}, {"images", dir.path("images")}},
            {{"stage", "shuffle"}, {"buffer", 7}},
            {{"stage", "batch"}, {"size", 4}}}}};
}

Json saved_within_an_epoch(const Json& spec) {
  Pipeline pipeline(spec);
  Item item;
  for (int n = 0; n < 3; ++n) pipeline.next(item);
  return parse_json(pipeline.save().dump(), "state");
}

// Restores and reads an epoch. Returns the message of the error, "" if there is none. The message
// must not be one of the JSON library.
std::string said_of(const Json& spec, const Json& state) {
  try {
    Pipeline pipeline(spec);
    pipeline.restore(state);
    digest_of_epoch(pipeline);
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_TRUE(error.code() == Code::corrupt_data || error.code() == Code::invalid_argument)
        << text;
    for (const char* raw : {"operator[]", "array index", "type must be", "json.exception", "at()"})
      EXPECT_EQ(text.find(raw), std::string::npos) << text;
    return text;
  }
  return "";
}

TEST(Restore, RefusesPositionsThatCannotBe) {
  TempDir dir;
  const Json sharded =
      restorable_spec(make_shards(dir, 3, 20), R"(, {"stage": "batch", "size": 4})");
  for (const Json& spec : {idx_spec(dir), sharded}) {
    const Json good = saved_within_an_epoch(spec);
    EXPECT_EQ(said_of(spec, good), "");
    const auto with = [&](const char* key, const Json& value) {
      Json state = good;
      state[key] = value;
      return said_of(spec, state);
    };
    for (const char* key : {"delivered", "epoch"})
      for (const char* value :
           {"-1", "1.5", "null", "\"x\"", "9223372036854775807", "1e300", "[1]"})
        EXPECT_NE(with(key, Json::parse(value)).find(cat("'", key, "' is ")), std::string::npos)
            << key << value;
    EXPECT_NE(with("delivered", 100).find("the saved position"), std::string::npos);
    EXPECT_NE(with("delivered", 16).find("the saved position"), std::string::npos);
  }
  Json far = saved_within_an_epoch(idx_spec(dir));
  far["delivered"] = 1'000'000'000;
  EXPECT_NE(said_of(idx_spec(dir), far).find("cannot be reached"), std::string::npos);
  // The way through passes longer than the data could take days.
  Json long_pass = saved_within_an_epoch(idx_spec(dir));
  long_pass["delivered"] = 100'000;
  long_pass["pass_lengths"] = Json::array({1'000'000u});
  const std::string longer = said_of(idx_spec(dir), long_pass);
  EXPECT_NE(longer.find("'pass_lengths' holds 1000000, and a pass has 60 samples"),
            std::string::npos)
      << longer;
  for (const char* length : {"\"x\"", "-1", "1.5", "1099511627777"}) {
    long_pass["pass_lengths"] = Json::array({Json::parse(length)});
    EXPECT_NE(said_of(idx_spec(dir), long_pass)
                  .find(cat("'pass_lengths' holds ", length, ", not a number of samples")),
              std::string::npos)
        << length;
  }
  // The error with which a pass may end counts, too.
  for (const uint64_t length : {uint64_t{62}, uint64_t{1} << 40}) {
    long_pass["pass_lengths"] = Json::array({length});
    EXPECT_NE(said_of(idx_spec(dir), long_pass)
                  .find(cat("'pass_lengths' holds ", length, ", and a pass has 60 samples")),
              std::string::npos);
  }
  long_pass["pass_lengths"] = Json::array({61u});
  EXPECT_EQ(said_of(idx_spec(dir), long_pass).find("'pass_lengths'"), std::string::npos);
  Json copies = saved_within_an_epoch(idx_spec(dir));
  for (const Json& value :
       {Json(3), Json{{"2", 3}}, Json{{"2", pack_numbers(std::vector<uint64_t>{1, 0, 1})}}}) {
    copies["dropped_copies"] = value;
    EXPECT_NE(said_of(idx_spec(dir), copies).find("'dropped_copies'"), std::string::npos) << value;
  }
}

TEST(Restore, SaysInPlainWordsWhatIsDamaged) {
  TempDir dir;
  const Json spec = restorable_spec(make_shards(dir, 2, 20), R"(, {"stage": "batch", "size": 4})");
  const Json saved = saved_within_an_epoch(spec);
  for_each_change(saved, [&](const Json& changed, const std::string& what) {
    SCOPED_TRACE(what);
    said_of(spec, changed);
  });
  Json of_nobody = saved;
  of_nobody["world"] = 0;
  of_nobody.erase("rank");
  EXPECT_NE(said_of(spec, of_nobody).find("'rank'"), std::string::npos);
  of_nobody["world"] = of_nobody["rank"] = 3;
  EXPECT_NE(said_of(spec, of_nobody).find("'rank' is 3 of a world of 3"), std::string::npos);
}

TEST(Restore, SaysInPlainWordsWhatIsDamagedOfNestedSources) {
  TempDir dir;
  const Json spec = nested_spec(dir), state = Pipeline(spec).save();
  const Json::json_pointer sources("/pipeline/stages/0/mix/sources");
  for_each_change(state[sources], [&](const Json& changed, const std::string& what) {
    SCOPED_TRACE(what);
    Json damaged = state;
    damaged[sources] = changed;
    said_of(spec, damaged);
  });
}

// As a worker does that joins others within an epoch.
TEST(Restore, APositionCanBeMovedToTheStartOfItsEpoch) {
  TempDir dir;
  const Json spec =
      restorable_spec(make_shards(dir, 1, 60),
                      R"(, {"stage": "delay", "milliseconds": 1}, {"stage": "repeat", "count": 2},
                         {"stage": "echo", "mode": "on_demand", "factor": 4, "buffer": 10},
                         {"stage": "filter", "field": "label", "min": 30},
                         {"stage": "batch", "size": 4})");
  Pipeline original(spec);
  Json start = original.save(), state = start;
  start["decisions"] = Json::object();  // instead of empty lists
  while (!state.contains("dropped_copies") || state["pass_lengths"].empty()) {
    digest_of_epoch(original, 1);
    state = original.save();
    ASSERT_EQ(state["epoch"], 0);
  }
  EXPECT_FALSE(state["decisions"].empty());
  EXPECT_TRUE(pipeline::lies_within_epoch(state));
  state["done"] = Json::object();
  pipeline::return_to_start(state);
  EXPECT_EQ(state, start);
  EXPECT_FALSE(pipeline::lies_within_epoch(state));
}

TEST(Restore, CanBeCancelledOnALongWay) {
  TempDir dir;
  const Json spec = restorable_spec(make_shards(dir, 2, 20), R"(, {"stage": "batch", "size": 4})");
  Json state = saved_within_an_epoch(spec);
  state["delivered"] = uint64_t{1} << 39;
  state["pass_lengths"] = Json::array();
  Pipeline pipeline(spec);
  auto code = std::async(std::launch::async, [&] {
    try {
      pipeline.restore(state);
    } catch (const Error& error) {
      return error.code();
    }
    return Code::ok;
  });
  pipeline.cancel();
  EXPECT_EQ(code.get(), Code::cancelled);
}

// Holds all items, and interrupts the replay at the tenth.
struct StopsAndHolds final : pipeline::SerialStage {
  explicit StopsAndHolds(Interrupt& way) : interrupt(way) {}
  void process(Item&& item, pipeline::Emitter&) override {
    held.push_back(std::move(item));
    if (held.size() == 10) interrupt.stop();
  }
  Interrupt& interrupt;
  std::vector<Item> held;
};

TEST(Restore, AWayThatIsStoppedMayHoldSamples) {  // the address sanitizer finds leaks
  Interrupt interrupt;
  std::vector<pipeline::AnyStage> stages;
  stages.emplace_back(std::make_unique<StopsAndHolds>(interrupt));
  pipeline::ReplayInput input;
  input.stages.emplace_back(1, pipeline::serial_of(stages.back()));
  input.outputs = 1;
  input.interrupt = &interrupt;
  EXPECT_THROW(plan_replay(input, std::move(stages)), Error);
}

// Threads that cannot be started ------------------------------------------------------------------

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // their own memory exceeds every limit
TEST(Threads, ThatCannotBeStartedAreAnErrorThatSaysSo) {
  EXPECT_EQ(
      in_child([] {
        const auto now = static_cast<rlim_t>(status_kb("VmSize") * 1024 + (2 << 20));
        const rlimit limit{now, now};  // a stack needs more
        if (setrlimit(RLIMIT_AS, &limit) != 0) return 2;
        try {
          std::vector<std::unique_ptr<pipeline::Task>> tasks;  // earlier threads may leave stacks
          for (int i = 0; i < 200; ++i) tasks.push_back(pipeline::make_thread_task([] {}));
        } catch (const Error& error) {
          const std::string text = error.what();
          return error.code() == Code::out_of_memory &&
                         text.find("a thread of the pipeline could not be started") == 0 &&
                         text.find("'threads'") != std::string::npos
                     ? 0
                     : 3;
        }
        return 4;
      }),
      0);
}
#endif

}  // namespace
}  // namespace etr::test
