#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/log.h"
#include "core/platform.h"
#include "io/tar_writer.h"
#include "support/data.h"
#include "support/error_text.h"
#include "support/eventually.h"

namespace etr::test {
namespace {

using pipeline::Item;
using pipeline::Pipeline;

Json policy_spec(const std::string& pattern, const std::string& policy,
                 const std::string& directory = "") {
  return {{"on_error", policy},
          {"quarantine_dir", directory},
          {"epochs", 1},
          {"stages",
           {{{"stage", "webdataset"}, {"pattern", pattern}, {"shuffle_shards", false}},
            {{"stage", "label"}},
            {{"stage", "decode"}}}}};
}

void write_shard(const std::string& path, int samples, int bad_png, int without_label) {
  io::TarWriter writer(path, 3);
  for (int i = 0; i < samples; ++i) {
    const auto add = [&](const std::string& ending, const std::string& bytes) {
      writer.add("s" + std::to_string(i) + ending, std::as_bytes(std::span(bytes)));
    };
    std::string png = make_png(9, 7, 3, i);
    if (i == bad_png) png.resize(png.size() / 2);
    add(".png", png);
    if (i != without_label) add(".cls", std::to_string(i % 10));
  }
  writer.finish();
}

void truncate_file(const std::string& path, double share) {
  std::filesystem::resize_file(
      path, static_cast<uintmax_t>(static_cast<double>(std::filesystem::file_size(path)) * share));
}

void flip_byte(const std::string& path, size_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char c = static_cast<char>(file.get() ^ 0x5A);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(c);
}

// Returns the message of the error that ends the run; "" if none does. Counts the items before it
// in `delivered`.
std::string error_of(const Json& spec, int* delivered = nullptr) {
  Pipeline p(spec);
  Item item;
  try {
    while (p.next(item) == Pipeline::Next::item)
      if (delivered) ++*delivered;
  } catch (const Error& error) {
    try {  // the error is permanent
      p.next(item);
      ADD_FAILURE() << "the pipeline went on after an error";
    } catch (const Error& again) {
      EXPECT_STREQ(again.what(), error.what());
    }
    return error.what();
  }
  return "";
}

void expect_names(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
}

TEST(BadRecords, AnErrorNamesStageShardKeyAndReason) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 20, 7, -1);
  int delivered = 0;
  expect_names(error_of(policy_spec(dir.path("a.tar"), "fail"), &delivered),
               {"stage 'decode'", "a.tar", "key 's7'", "bad PNG"});
  EXPECT_EQ(delivered, 7);
  write_shard(dir.path("b.tar"), 20, -1, 5);
  expect_names(error_of(policy_spec(dir.path("b.tar"), "fail")),
               {"stage 'label'", "b.tar", "key 's5'", "missing label"});
}

TEST(BadRecords, ALackOfMemoryIsNotTheRecordsFault) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 20, -1, -1);
  Json spec = policy_spec(dir.path("a.tar"), "skip");
  spec["stages"].push_back({{"stage", "map"}, {"function", "lacks"}});
  pipeline::MapFunctions functions;
  functions["lacks"] = [](Item&, uint64_t) {
    fail(Code::out_of_memory, "no memory for this sample");
  };
  Pipeline p(spec, functions);
  Item item;
  try {
    p.next(item);
    ADD_FAILURE() << "samples were skipped";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::out_of_memory) << error.what();
    expect_names(error.what(), {"stage 'map'", "a.tar", "key 's0'", "no memory for this sample"});
  }
}

TEST(BadRecords, TruncatedTarNamesShardAndMember) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 20, -1, -1);
  truncate_file(dir.path("a.tar"), 0.5);
  expect_names(error_of(policy_spec(dir.path("a.tar"), "fail")),
               {"stage 'webdataset'", "a.tar", "truncated", "after member 's"});
}

TEST(BadRecords, TruncatedAndCorruptZstdNameTheShard) {
  TempDir dir;
  write_shard(dir.path("a.tar.zst"), 50, -1, -1);
  truncate_file(dir.path("a.tar.zst"), 0.7);
  expect_names(error_of(policy_spec(dir.path("a.tar.zst"), "fail")), {"a.tar.zst", "truncated"});
  write_shard(dir.path("b.tar.zst"), 50, -1, -1);
  flip_byte(dir.path("b.tar.zst"), 2);  // in the frame's magic number
  expect_names(error_of(policy_spec(dir.path("b.tar.zst"), "fail")), {"b.tar.zst", "corrupt zstd"});
}

TEST(BadRecords, GarbageIsNotATar) {
  TempDir dir;
  const std::string garbage(5000, 'x');
  platform::write_file_synced(dir.path("a.tar"), std::as_bytes(std::span(garbage)));
  expect_names(error_of(policy_spec(dir.path("a.tar"), "fail")), {"a.tar", "checksum"});
}

TEST(BadRecords, SkipCountsListsAndGoesOn) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 20, 7, 3);
  write_shard(dir.path("b.tar.zst"), 30, -1, -1);
  truncate_file(dir.path("b.tar.zst"), 0.2);
  write_shard(dir.path("c.tar"), 10, -1, -1);
  Pipeline p(policy_spec(dir.path("{a.tar,b.tar.zst,c.tar}"), "skip"));
  const auto labels = labels_of_epoch(p);
  EXPECT_GE(labels.size(), 28u);  // 18 of a, some of b, 10 of c
  EXPECT_EQ(p.stats()["bad_records"], 3);
  const Json list = p.bad_record_list();
  ASSERT_EQ(list.size(), 3u);
  std::set<std::string> keys, shards;
  for (const Json& record : list) {
    keys.insert(record["key"]);
    shards.insert(std::filesystem::path(record["shard"].get<std::string>()).filename());
    EXPECT_FALSE(record["reason"].get<std::string>().empty());
  }
  EXPECT_TRUE(keys.contains("s3") && keys.contains("s7"));
  EXPECT_TRUE(shards.contains("b.tar.zst"));
}

TEST(BadRecords, QuarantineKeepsTheRecord) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 12, 4, -1);
  Pipeline p(policy_spec(dir.path("a.tar"), "quarantine", dir.path("bad")));
  EXPECT_EQ(labels_of_epoch(p).size(), 11u);
  EXPECT_TRUE(std::filesystem::exists(dir.path("bad/a.tar-s4.png")));
  const std::string list = platform::read_file(dir.path("bad/bad_records.jsonl"));
  EXPECT_EQ(parse_json(list, "list")["key"], "s4");
}

TEST(BadRecords, TheLimitEndsTheRun) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 20, 7, 3);
  Json spec = policy_spec(dir.path("a.tar"), "skip");
  spec["max_bad_records"] = 1;
  expect_names(error_of(spec), {"more than max_bad_records = 1"});
}

TEST(BadRecords, SamplesThatDoNotStackAreNamed) {
  TempDir dir;
  io::TarWriter writer(dir.path("a.tar"), 3);
  for (int i = 0; i < 8; ++i) {
    const std::string png = make_png(i == 5 ? 9 : 8, 8, 1, i);
    writer.add("s" + std::to_string(i) + ".png", std::as_bytes(std::span(png)));
    writer.add("s" + std::to_string(i) + ".cls", std::as_bytes(std::span("1", 1)));
  }
  writer.finish();
  Json spec = policy_spec(dir.path("a.tar"), "fail");
  spec["stages"].push_back({{"stage", "batch"}, {"size", 8}});
  expect_names(error_of(spec), {"stage 'batch'", "key 's5'", "[8, 9, 1]", "[8, 8, 1]"});
}

// Of 30 samples, number 7 has a bad PNG and number 12 no label. Some stages have a policy of their
// own.
TEST(BadRecords, StagesMayHaveTheirOwnPolicy) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 30, 7, 12);
  Json spec = policy_spec(dir.path("a.tar"), "fail");
  expect_names(error_of(spec), {"decode", "s7"});
  spec["on_error_in"] = "decode = skip";
  expect_names(error_of(spec), {"label", "s12"});
  spec["on_error_in"] = "decode=skip, label=skip";
  int delivered = 0;
  EXPECT_EQ(error_of(spec, &delivered), "");
  EXPECT_EQ(delivered, 28);
  spec["on_error_in"] = "decod=skip";
  EXPECT_THROW(Pipeline{spec}, Error);
  spec["on_error_in"] = "decode=skipp";
  EXPECT_THROW(Pipeline{spec}, Error);
}

TEST(BadRecords, SubstituteKeepsTheCount) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 30, 7, 12);
  for (const int threads : {1, 4}) {
    Json spec = policy_spec(dir.path("a.tar"), "substitute");
    spec["threads"] = threads;
    Pipeline p(spec);
    std::vector<std::string> keys;
    for (Item item; p.next(item) == Pipeline::Next::item;) {
      keys.push_back(item.origin->key);
      EXPECT_NE(item.find("image"), nullptr);
    }
    ASSERT_EQ(keys.size(), 30u);
    EXPECT_EQ(keys[7], "s6");
    EXPECT_EQ(keys[12], "s11");
    EXPECT_EQ(p.bad_record_list().size(), 2u);
  }
}

TEST(BadRecords, SubstituteIsRestoredAlike) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 40, 20, 21);
  const Json spec = policy_spec(dir.path("a.tar"), "substitute");
  for (const int at : {5, 20, 21, 30}) {
    Pipeline original(spec);
    digest_of_epoch(original, at);
    Pipeline restored(spec);
    restored.restore(original.save());
    EXPECT_EQ(digest_of_epoch(original), digest_of_epoch(restored)) << at;
  }
}

// The first record is bad in each epoch, and none of the epoch before may replace it: a restored
// run has not read that one.
TEST(BadRecords, SubstituteTakesNothingFromTheEpochBefore) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 12, 0, 5);
  Json spec = policy_spec(dir.path("a.tar"), "substitute");
  spec["epochs"] = 3;
  Pipeline original(spec);
  EXPECT_EQ(labels_of_epoch(original), (std::vector<int32_t>{1, 2, 3, 4, 4, 6, 7, 8, 9, 0, 1}));
  digest_of_epoch(original, 3);
  Pipeline restored(spec);
  restored.restore(original.save());
  for (const uint64_t left : {8, 11}) {
    const auto labels = labels_of_epoch(original);
    EXPECT_EQ(labels.size(), left);
    EXPECT_EQ(labels, labels_of_epoch(restored));
  }
}

// Behind an echo node with 'device', the image is in the views.
TEST(BadRecords, SubstituteReplacesThePictureThatTheDeviceCrops) {
  TempDir dir;
  io::TarWriter writer(dir.path("a.tar"), 3);
  for (int i = 0; i < 6; ++i) {
    const std::string png = make_png(i == 3 ? 4 : 9, 9, 1, i), name = "s" + std::to_string(i);
    writer.add(name + ".png", std::as_bytes(std::span(png)));
    writer.add(name + ".cls", std::as_bytes(std::span("1", 1)));
  }
  writer.finish();
  Json spec = policy_spec(dir.path("a.tar"), "substitute");
  spec["stages"].push_back(
      {{"stage", "echo"}, {"mode", "together"}, {"factor", 2}, {"device", true}});
  spec["stages"].push_back({{"stage", "random_crop"}, {"height", 7}, {"width", 7}});
  Pipeline p(spec, {}, /*defers=*/true);
  std::vector<Item> items;
  for (Item item; p.next(item) == Pipeline::Next::item;) items.push_back(item);
  ASSERT_EQ(items.size(), 12u);
  for (size_t i = 0; i < items.size(); ++i) {
    const pipeline::ImageView& view = items[i].views->front();
    EXPECT_EQ(view.width, 7) << i;
    if (i / 2 == 3) {
      EXPECT_EQ(view.image, items[5].views->front().image) << i;
      EXPECT_EQ(items[i].origin->key, "s2");
    }
  }
}

TEST(BadRecords, ABatchThatReplacesAnotherHasItsSize) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 10, -1, -1);
  Json spec = policy_spec(dir.path("a.tar"), "substitute");
  spec["stages"].push_back({{"stage", "batch"}, {"size", 4}, {"drop_remainder", false}});
  spec["stages"].push_back({{"stage", "map"}, {"function", "full"}});
  Pipeline p(spec, {{"full", [](Item& batch, uint64_t) {
                       if (batch.batch.size < 4) fail(Code::corrupt_data, "not full");
                     }}});
  int batches = 0;
  for (Item item; p.next(item) == Pipeline::Next::item; ++batches)
    EXPECT_EQ(item.batch.size, item.find("label")->shape()[0]);
  EXPECT_EQ(batches, 3);
}

TEST(BadRecords, AShareMayBeBad) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 30, 7, 12);
  Json spec = policy_spec(dir.path("a.tar"), "skip");
  spec["max_bad_share"] = 0.02;  // two of the first hundred
  EXPECT_EQ(error_of(spec), "");
  spec["max_bad_share"] = 0.01;
  expect_names(error_of(spec), {"max_bad_share = 0.01", "2 of"});
}

TEST(BadRecords, AreListedInAFileWithTheirOffset) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 30, 7, 12);
  Json spec = policy_spec(dir.path("a.tar"), "skip");
  spec["bad_records_file"] = dir.path("bad.jsonl");
  EXPECT_EQ(error_of(spec), "");
  std::ifstream in(dir.path("bad.jsonl"));
  std::vector<Json> rows;
  for (std::string line; std::getline(in, line);) rows.push_back(parse_json(line, "bad.jsonl"));
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows) {
    const auto offset = row["offset"].get<size_t>();
    const std::string tar = platform::read_file(dir.path("a.tar"));
    const auto key = row["key"].get<std::string>();
    EXPECT_EQ(tar.substr(offset, key.size()), key);
  }
}

// Writes a shard with a good sample, and with one under `key` whose PNG is bad.
void write_bad(const std::string& path, const std::string& key) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  io::TarWriter writer(path, 3);
  for (const std::string& name : {std::string("good"), key}) {
    std::string png = make_png(9, 7, 3, 1);
    if (name == key) png.resize(png.size() / 2);
    writer.add(name + ".png", std::as_bytes(std::span(png)));
    writer.add(name + ".cls", std::as_bytes(std::span("1", 1)));
  }
  writer.finish();
}

size_t files_in(const std::string& directory) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

// File systems and archives allow any bytes in names.
TEST(BadRecords, NamesThatAreNotUtf8AreQuarantined) {
  TempDir dir;
  const std::string shard = dir.path("caf\xE9/sh\xFF.tar");
  write_bad(shard, "k\xC0y/\xE9");
  Json spec = policy_spec(dir.path("caf*/sh*.tar"), "quarantine", dir.path("bad"));
  spec["bad_records_file"] = dir.path("list.jsonl");
  Pipeline p(spec);
  EXPECT_EQ(labels_of_epoch(p).size(), 1u);
  const Json row = parse_json(platform::read_file(dir.path("list.jsonl")), "list");
  EXPECT_EQ(row["key"], "k\\xC0y/\\xE9");
  EXPECT_NE(row["shard"].get<std::string>().find("caf\\xE9/sh\\xFF.tar"), std::string::npos);
  EXPECT_EQ(files_in(dir.path("bad")), 3u) << "the fields png and cls, and the list";
  const std::string message = error_of(policy_spec(dir.path("caf*/sh*.tar"), "fail"));
  EXPECT_NO_THROW(Json(message).dump()) << message;
  expect_names(message, {"caf\\xE9", "key 'k\\xC0y"});
}

TEST(BadRecords, LongNamesAreQuarantined) {
  TempDir dir;
  const std::string folder(90, 'd');
  std::filesystem::create_directories(dir.path("root/" + folder));
  const std::string name(200, 'n'), bytes = "no image";
  for (const char* ending : {"1.png", "2.png"})  // equal where the names are cut off
    std::ofstream(dir.path("root/" + folder + "/" + name + ending)) << bytes;
  const Json spec{
      {"on_error", "quarantine"},
      {"quarantine_dir", dir.path("bad")},
      {"epochs", 1},
      {"stages", {{{"stage", "folder"}, {"root", dir.path("root")}}, {{"stage", "decode"}}}}};
  EXPECT_EQ(error_of(spec), "");
  EXPECT_EQ(files_in(dir.path("bad")), 5u) << "two fields of two records, and the list";
  std::ifstream list(dir.path("bad/bad_records.jsonl"));
  for (std::string line; std::getline(list, line);) {
    const Json row = parse_json(line, "list");
    for (const Json& file : row["files"])
      EXPECT_TRUE(std::filesystem::exists(dir.path("bad/" + file.get<std::string>()))) << line;
  }
}

TEST(BadRecords, ShardsOfOneNameAreKeptApart) {
  TempDir dir;
  for (const char* folder : {"a", "b"}) write_bad(dir.path(std::string(folder) + "/x.tar"), "key");
  EXPECT_EQ(error_of(policy_spec(dir.path("{a,b}/x.tar"), "quarantine", dir.path("bad"))), "");
  EXPECT_EQ(files_in(dir.path("bad")), 5u);
}

TEST(BadRecords, TheSameOneInAnotherEpochIsNoOther) {
  TempDir dir;
  write_bad(dir.path("x/a.tar"), "key");
  Json spec = policy_spec(dir.path("x/a.tar"), "quarantine", dir.path("bad"));
  spec["epochs"] = 5;
  spec["max_bad_records"] = 1;
  spec["bad_records_file"] = dir.path("list.jsonl");
  Pipeline p(spec);
  for (int epoch = 0; epoch < 5; ++epoch) EXPECT_EQ(labels_of_epoch(p).size(), 1u);
  EXPECT_EQ(p.stats()["bad_records"], 1);
  EXPECT_EQ(p.stats()["bad_record_times"], 5);
  ASSERT_EQ(p.bad_record_list().size(), 1u);
  EXPECT_EQ(p.bad_record_list()[0]["occurrences"], 5);
  for (const char* list : {"list.jsonl", "bad/bad_records.jsonl"}) {
    const std::string lines = platform::read_file(dir.path(list));
    EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << list;
  }
}

// A run of twelve samples per epoch, in which the stage 'map' rejects those for which `bad` is
// true. In the first epoch, it waits with that until `ahead` bad records have been met in later
// epochs. There are enough threads, and thus messages, for every sample of these epochs.
struct ReadAhead {
  using Bad = std::function<bool(uint64_t epoch, uint64_t number)>;

  ReadAhead(const Bad& bad, int64_t ahead, Json options) {
    options["threads"] = 32;
    options["stages"] = {{{"stage", "webdataset"},
                          {"pattern", make_shards(dir, 1, 12, 8)},
                          {"shuffle_shards", false}},
                         {{"stage", "label"}},
                         {{"stage", "map"}, {"function", "picky"}}};
    pipeline::MapFunctions functions;
    functions["picky"] = [this, bad, ahead](Item& item, uint64_t epoch) {
      const uint64_t number = item.ordinal & 0xFFFF;
      if (!bad(epoch, number)) return;
      if (epoch == 0) {
        EXPECT_TRUE(eventually([&] { return pipeline->stats()["bad_record_times"] >= ahead; }));
      }
      throw Error(Code::corrupt_data, "picky");
    };
    pipeline.emplace(options, functions);
  }

  // Returns the number of epochs that ended before the error, whose message must have `words`.
  int epochs_before(const std::string& words) {
    int ended = 0;
    try {
      for (Item item; ended < 50;)
        if (pipeline->next(item) == Pipeline::Next::end_of_epoch) ++ended;
    } catch (const Error& error) {
      expect_names(error.what(), {words, "stage 'map'", "picky"});
    }
    return ended;
  }

  TempDir dir;
  std::optional<Pipeline> pipeline;
};

// A worker that is some epochs ahead meets the record first. The error must still come in the first
// epoch.
TEST(BadRecords, TheLimitHoldsInTheFirstEpochThoughLaterOnesAreReadAhead) {
  for (const char* policy : {"skip", "substitute"}) {
    ReadAhead run([](uint64_t, uint64_t number) { return number == 1; }, 2,
                  {{"on_error", policy}, {"max_bad_records", 0}});
    EXPECT_EQ(run.epochs_before("more than max_bad_records = 0"), 0) << policy;
  }
  ReadAhead two([](uint64_t, uint64_t number) { return number == 1 || number == 7; }, 4,
                {{"on_error", "skip"}, {"max_bad_records", 1}});
  EXPECT_EQ(two.epochs_before("more than max_bad_records = 1"), 0);
}

// A record that only a later epoch meets does not count in earlier epochs, but it counts in its
// own.
TEST(BadRecords, RecordsOfLaterEpochsEndTheRunInTheirs) {
  TempDir out;
  ReadAhead run(
      [](uint64_t epoch, uint64_t number) {
        return epoch == 1 ? number == 5 : epoch == 0 && number == 1;
      },
      1,
      {{"on_error", "skip"}, {"max_bad_records", 1}, {"bad_records_file", out.path("list.jsonl")}});
  EXPECT_EQ(run.epochs_before("more than max_bad_records = 1"), 1);
}

TEST(BadRecords, CopiesOfAnEchoNodeDoNotCountTowardsTheShare) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 300, 7, -1);
  Json spec = policy_spec(dir.path("a.tar"), "skip");
  spec["max_bad_share"] = 0.01;  // one of 300 is less, eight times one is more
  const Json decode = spec["stages"].back();
  spec["stages"].back() = {{"stage", "echo"}, {"factor", 8}};
  spec["stages"].push_back(decode);
  EXPECT_EQ(error_of(spec), "");
}

// The neighbour's fields would otherwise be kept as those of the bad record.
TEST(BadRecords, ASubstituteIsNotCachedAsTheBadRecord) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 20, 7, -1);
  const auto spec = [&](const char* policy) {
    Json out = policy_spec(dir.path("a.tar"), policy);
    out["epochs"] = 2;
    out["stages"].push_back({{"stage", "shuffle"}, {"buffer", 4}});
    out["stages"].push_back({{"stage", "cache"}, {"shared", dir.path("cache")}});
    return out;
  };
  EXPECT_EQ(error_of(spec("substitute")), "");
  EXPECT_NE(error_of(spec("fail")).find("bad PNG"), std::string::npos);
}

// A sample that a cache further on will recall has no fields yet when the sample after it is bad.
TEST(BadRecords, ACacheFurtherOnDoesNotChangeSubstitutes) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 20, 7, -1);
  Json spec = policy_spec(dir.path("a.tar"), "substitute");
  spec["stages"].push_back({{"stage", "shuffle"}, {"buffer", 4}});
  Pipeline without(spec);
  const uint64_t digest = digest_of_epoch(without);
  spec["stages"].push_back({{"stage", "cache"}, {"shared", dir.path("cache")}});
  Pipeline fills(spec), recalls(spec);
  for (Pipeline* with : {&fills, &recalls}) {
    EXPECT_EQ(digest_of_epoch(*with), digest);
    EXPECT_EQ(with->stats()["consumer"]["items"], 20);
  }
  EXPECT_EQ(recalls.stats()["stages"].back()["cache"]["hits"], 20);
}

TEST(BadRecords, TheShareCountsWhatEachEpochHasMet) {
  ReadAhead run([](uint64_t, uint64_t number) { return number == 1; }, 3,
                {{"on_error", "skip"}, {"max_bad_share", 0.01}});
  EXPECT_EQ(run.epochs_before("more than max_bad_share = 0.01"), 1);
}

// Later epochs, which are read ahead, meet the record before the first epoch does.
TEST(BadRecords, ARecordIsListedOnceWhoeverMeetsItFirst) {
  TempDir out;
  ReadAhead run([](uint64_t, uint64_t number) { return number == 1; }, 3,
                {{"on_error", "quarantine"},
                 {"quarantine_dir", out.path("bad")},
                 {"bad_records_file", out.path("list.jsonl")},
                 {"epochs", 8}});
  EXPECT_EQ(run.epochs_before(""), 50);
  EXPECT_EQ(run.pipeline->stats()["bad_records"], 1);
  EXPECT_EQ(run.pipeline->stats()["bad_record_times"], 8);
  for (const char* list : {"list.jsonl", "bad/bad_records.jsonl"}) {
    const std::string lines = platform::read_file(out.path(list));
    EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << list;
  }
}

// A pipe without a reader would block the run at its first bad record.
TEST(BadRecords, TheListIsARegularFile) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 4, 1, -1);
  ASSERT_EQ(mkfifo(dir.path("pipe").c_str(), 0600), 0);
  Json spec = policy_spec(dir.path("a.tar"), "skip");
  spec["bad_records_file"] = dir.path("pipe");
  try {
    Pipeline p(spec);
    ADD_FAILURE();
  } catch (const Error& error) {
    expect_names(error.what(), {"bad_records_file", dir.path("pipe"), "is not a regular file"});
  }
}

// No sample is at fault: leaving it out would only lead to the same error at the next one.
TEST(BadRecords, ABufferThatIsTooSmallEndsTheRunUnderEveryPolicy) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 20, -1, -1);
  for (const char* policy : {"fail", "skip", "substitute"})
    for (const std::string& stage :
         {std::string(R"({"stage": "shuffle", "buffer": 9, "buffer_bytes": 1000})"),
          std::string(R"({"stage": "echo", "factor": 3, "buffer": 30, "buffer_bytes": 1000})"),
          std::string(R"({"stage": "echo", "factor": 3, "buffer": 30, "buffer_bytes": 1})")}) {
      Json spec = policy_spec(dir.path("a.tar"), policy);
      spec["stages"].push_back(parse_json(stage, "stage"));
      const std::string message = error_of(spec);
      expect_names(message, {"raise 'buffer_bytes'"});
      for (const char* part : {"on_error", "key '", "max_bad_records"})
        EXPECT_EQ(message.find(part), std::string::npos) << message;
    }
}

TEST(BadRecords, AFullDiskUnderACacheMakesNone) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 30, -1, -1);
  Json spec = policy_spec(dir.path("a.tar"), "fail");
  spec["epochs"] = 2;
  spec["stages"].push_back({{"stage", "cache"}, {"directory", dir.path("")}});
  std::string told;
  set_log_hook([&](LogLevel level, const char* line) {
    if (level == LogLevel::warning) told += line;
  });
  rlimit any{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &any), 0);
  const rlimit little{2000, any.rlim_max};  // ten samples have 1,890 bytes
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  int delivered = 0;
  std::string error;
  {
    Pipeline p(spec);
    Item item;
    error = error_text([&] {
      for (int epoch = 0; epoch < 2; ++epoch)
        while (p.next(item) == Pipeline::Next::item) ++delivered;
    });
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &any), 0);
  set_log_hook(nullptr);
  EXPECT_EQ(error, "");
  EXPECT_EQ(delivered, 60);
  const std::string why = "the cache keeps no more samples";
  EXPECT_NE(told.find(why), std::string::npos) << told;
  EXPECT_EQ(told.find(why), told.rfind(why)) << told;
}

// A function of the program may fail because the program ends.
TEST(BadRecords, WhatFailsAfterTheCancellationIsNone) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 4, -1, -1);
  const Json source = {{"stage", "source"}, {"function", "ends"}};
  const Json shard = {{"stage", "webdataset"}, {"pattern", dir.path("a.tar")}};
  const Json map = {{"stage", "map"}, {"function", "ends"}};
  for (const Json& stages : {Json::array({source}), Json::array({shard, map})}) {
    SCOPED_TRACE(stages.dump());
    std::promise<void> entered, leave;
    const std::shared_future<void> left = leave.get_future().share();
    const pipeline::MapFunctions functions{
        {"ends", [&, first = std::make_shared<std::atomic<bool>>(true)](Item&, uint64_t) {
           if (first->exchange(false)) entered.set_value();
           left.wait();
           fail(Code::callback, "the program ends");
         }}};
    {
      Pipeline p({{"on_error", "quarantine"},
                  {"quarantine_dir", dir.path("quarantine")},
                  {"bad_records_file", dir.path("list.jsonl")},
                  {"stages", stages}},
                 functions);
      std::thread consumer([&] {
        Item item;
        EXPECT_THROW(p.next(item), Error);
      });
      entered.get_future().wait();
      p.cancel();
      leave.set_value();
      consumer.join();
    }
    EXPECT_FALSE(std::filesystem::exists(dir.path("list.jsonl")));
    EXPECT_FALSE(std::filesystem::exists(dir.path("quarantine")));
  }
}

// Files that cannot be read while others' records are skipped -------------------------------------

// Three files of five lines each.
struct ThreeFiles {
  ThreeFiles() {
    for (const char* name : {"a", "b", "c"})
      for (int i = 0; i < 5; ++i) std::ofstream(dir.path(name), std::ios::app) << name << i << "\n";
  }
  Json spec(int rank, int world) const {
    return {
        {"on_error", "skip"},
        {"epochs", 1},
        {"rank", rank},
        {"world_size", world},
        {"drop_remainder", false},
        {"stages",
         Json::array(
             {{{"stage", "text_lines"}, {"pattern", dir.path("?")}, {"shuffle_shards", false}}})}};
  }
  // Restores `state`, removes the file once the data is listed, and reads the rest of the epoch.
  // Returns the error that ends it, or the lines that were read.
  std::string rest_without(const char* file, const Json& spec, const Json& state) const {
    Pipeline p(spec);
    p.restore(state);
    std::filesystem::rename(dir.path(file), dir.path("away"));
    std::string lines;
    const std::string error = error_text([&] {
      for (Item item; p.next(item) == Pipeline::Next::item;) {
        const auto bytes = item.find("text")->view<uint8_t>();
        lines += std::string(bytes.begin(), bytes.end()) + " ";
      }
    });
    std::filesystem::rename(dir.path("away"), dir.path(file));
    return error.empty() ? lines : error;
  }

  TempDir dir;
};

// It would deliver other samples under the numbers of those that are lost, which another rank may
// have read.
TEST(BadRecords, ARankThatLosesCountOfTheOthersRecordsEndsTheRun) {
  const ThreeFiles files;
  for (const int rank : {0, 1}) {  // the first record of b is of rank 1
    SCOPED_TRACE(rank);
    const Json spec = files.spec(rank, 2);
    const std::string said = files.rest_without("b", spec, Pipeline(spec).save());
    expect_names(said, {files.dir.path("b"), "how many records are lost"});
  }
  const Json alone = files.spec(0, 1);
  EXPECT_EQ(files.rest_without("b", alone, Pipeline(alone).save()),
            "a0 a1 a2 a3 a4 c0 c1 c2 c3 c4 ");
}

TEST(BadRecords, AnUnreadableFileOnTheWayToAPositionEndsTheRun) {
  const ThreeFiles files;
  const Json spec = files.spec(0, 1);
  Pipeline original(spec);
  digest_of_epoch(original, 7);
  const Json state = original.save();
  EXPECT_EQ(files.rest_without("c", spec, state), "b2 b3 b4 ");
  for (const char* file : {"a", "b"})
    expect_names(files.rest_without(file, spec, state),
                 {files.dir.path(file), "how many records are lost"});
}

// Every rank meets it alike.
TEST(BadRecords, ACsvFileThatLacksAColumnIsLeftOutByAllRanks) {
  const TempDir dir;
  for (const char* name : {"a", "b", "c"})
    std::ofstream(dir.path(name)) << (*name == 'b' ? "other" : "id") << "\n1\n2\n3\n";
  size_t samples = 0;
  for (const int rank : {0, 1}) {
    Pipeline p(Json{{"on_error", "skip"},
                    {"epochs", 1},
                    {"rank", rank},
                    {"world_size", 2},
                    {"drop_remainder", false},
                    {"stages", Json::array({{{"stage", "csv"},
                                             {"pattern", dir.path("?")},
                                             {"columns", "id:i32=id"},
                                             {"shuffle_shards", false}}})}});
    for (Item item; p.next(item) == Pipeline::Next::item;) ++samples;
  }
  EXPECT_EQ(samples, 6u);
}

// Samples that do not fit into a batch ------------------------------------------------------------

// Gives the samples with these numbers fields of other shapes, each of another one.
pipeline::MapFunctions odd_ones(const std::vector<uint64_t>& odd) {
  return {{"shape", [odd](Item& item, uint64_t) {
             const uint64_t number = item.ordinal & 0xffffffff;
             const auto found = std::find(odd.begin(), odd.end(), number);
             Tensor x(DType::u8, {found == odd.end() ? 1 : 2 + (found - odd.begin())});
             std::memset(x.mutable_data(), static_cast<int>(number), x.size_bytes());
             item.fields.clear();
             item.set("x", std::move(x));
           }}};
}

Json batches_spec(const std::string& pattern, int size, const std::string& policy = "skip") {
  return {{"on_error", policy},
          {"epochs", 2},
          {"stages",
           {{{"stage", "webdataset"}, {"pattern", pattern}, {"shuffle_shards", false}},
            {{"stage", "map"}, {"function", "shape"}},
            {{"stage", "repeat"}, {"count", 2}},
            {{"stage", "batch"}, {"size", size}}}}};
}

TEST(BadRecords, ASampleIsOddWhereverItStandsInItsBatch) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 20, -1, -1);
  for (const std::vector<uint64_t>& odd :
       {std::vector<uint64_t>{4}, {0}, {0, 1}, {4, 5}, {6}, {3, 4}, {18, 19}, {19}, {19, 0}})
    for (const int size : {2, 4}) {
      SCOPED_TRACE(Json(odd).dump() + " in batches of " + std::to_string(size));
      const Json spec = batches_spec(dir.path("a.tar"), size);
      Pipeline p(spec, odd_ones(odd));
      std::vector<Json> positions{p.save()};
      std::vector<int> seen;
      for (Item item; p.next(item) == Pipeline::Next::item; positions.push_back(p.save()))
        for (const uint8_t x : item.find("x")->view<uint8_t>()) seen.push_back(x);
      std::vector<int> good;
      for (size_t n = 0; n < 40; ++n)
        if (std::find(odd.begin(), odd.end(), n % 20) == odd.end())
          good.push_back(static_cast<int>(n % 20));
      good.resize(good.size() / static_cast<size_t>(size) * static_cast<size_t>(size));
      EXPECT_EQ(seen, good);
      std::set<std::string> keys, expected;
      for (const Json& bad : p.bad_record_list()) keys.insert(bad["key"].get<std::string>());
      for (const uint64_t n : odd) expected.insert("s" + std::to_string(n));
      EXPECT_EQ(keys, expected);
      for (size_t at = 0; at < positions.size(); ++at) {
        Pipeline restored(spec, odd_ones(odd));
        restored.restore(positions[at]);
        std::vector<int> rest(good.begin(), good.begin() + static_cast<long>(at) * size);
        for (Item item; restored.next(item) == Pipeline::Next::item;)
          for (const uint8_t x : item.find("x")->view<uint8_t>()) rest.push_back(x);
        EXPECT_EQ(rest, good) << "from batch " << at;
      }
    }
}

// Nothing was delivered before the position, so nothing is passed over.
TEST(BadRecords, OnesBeforeTheFirstItemAreFoundAgain) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 20, -1, -1);
  const Json spec = batches_spec(dir.path("a.tar"), 4);
  Pipeline original(spec, odd_ones({1}));
  ASSERT_TRUE(original.wait(60));  // the first batch is complete
  const Json state = original.save();
  ASSERT_FALSE(state["drops"].empty());
  Pipeline restored(spec, odd_ones({1}));
  restored.restore(state);
  Item item;
  ASSERT_EQ(restored.next(item), Pipeline::Next::item);
  EXPECT_EQ(restored.stats()["bad_records"], 1);
}

TEST(BadRecords, TheOddSampleIsTheOneInTheError) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 20, -1, -1);
  const auto said = [&](const std::vector<uint64_t>& odd) {
    Pipeline p(batches_spec(dir.path("a.tar"), 4, "fail"), odd_ones(odd));
    return error_text([&] { digest_of_epoch(p); });
  };
  for (const uint64_t odd : {0, 4, 6})
    expect_names(said({odd}), {"stage 'batch'", "key 's" + std::to_string(odd) + "'",
                               "'x': u8 [2] beside u8 [1]", "crop or resize"});
}

// Wherever the sample stands that has a field more or less than the others.
TEST(BadRecords, ASampleWithOtherFieldsIsOdd) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 20, -1, -1);
  for (const char* stage : {"batch", "padded_batch"})
    for (const bool lacks : {true, false})
      for (const uint64_t odd : {0, 1, 4, 6}) {
        SCOPED_TRACE(std::string(stage) + ": " + std::to_string(odd) + (lacks ? " lacks" : " has"));
        const pipeline::MapFunctions functions{
            {"shape", [&](Item& item, uint64_t) {
               item.fields.clear();
               item.set("x", Tensor::scalar<int32_t>(DType::i32, 1));
               if (((item.ordinal & 0xffffffff) == odd) != lacks)
                 item.set("w", Tensor::scalar<int32_t>(DType::i32, 2));
             }}};
        Json spec = batches_spec(dir.path("a.tar"), 4, "skip");
        spec["stages"][3]["stage"] = stage;
        spec["stages"].erase(2);
        Pipeline p(spec, functions);
        Item item;
        for (int batch = 0; batch < 4; ++batch) {
          ASSERT_EQ(p.next(item), Pipeline::Next::item);
          EXPECT_EQ(item.find("w") != nullptr, lacks);
        }
        const Json list = p.bad_record_list();
        ASSERT_EQ(list.size(), 1u) << list;
        EXPECT_EQ(list[0]["key"], "s" + std::to_string(odd));
        EXPECT_NE(list[0]["reason"].get<std::string>().find("'w'"), std::string::npos) << list;
      }
}

// In a serial stage there is no sample that could stand in.
TEST(BadRecords, TheLogTellsWhatIsReplacedFromWhatIsDropped) {
  TempDir dir;
  write_shard(dir.path("a.tar"), 20, 7, -1);
  std::vector<std::string> lines;
  std::mutex mutex;
  set_log_hook([&](LogLevel, const char* line) {
    std::scoped_lock lock(mutex);
    lines.emplace_back(line);
  });
  const auto lines_of = [&](const std::string& stages, const pipeline::MapFunctions& functions) {
    lines.clear();
    Json spec = policy_spec(dir.path("a.tar"), "substitute");
    spec["stages"].erase(2);
    for (const Json& stage : parse_json(stages, "stages")) spec["stages"].push_back(stage);
    Pipeline p(spec, functions);
    digest_of_epoch(p);
    std::scoped_lock lock(mutex);
    return lines;
  };
  const auto replaced = lines_of(R"([{"stage": "decode"}])", {});
  ASSERT_EQ(replaced.size(), 1u);
  expect_names(replaced[0], {"bad record", "replaced by the good sample", "key 's7'"});
  const auto dropped = lines_of(
      R"([{"stage": "map", "function": "shape"}, {"stage": "batch", "size": 4}])", odd_ones({6}));
  ASSERT_EQ(dropped.size(), 1u);
  expect_names(dropped[0], {"bad record dropped", "key 's6'"});
  set_log_hook(nullptr);
}

}  // namespace
}  // namespace etr::test
