// Sources within sources, and the cache, which changes costs but never results.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/text.h"
#include "sources/files.h"

namespace etr::test {
namespace {

Json lines(const TempDir& dir, const std::string& name, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += name + std::to_string(i) + "\n";
  write(dir.path(name), all);
  return {{"stage", "text_lines"}, {"pattern", dir.path(name)}};
}

std::vector<std::string> texts(Pipeline& p, const char* field = "text") {
  std::vector<std::string> out;
  for (const Item& item : read_all(p)) out.push_back(text(item, field));
  return out;
}
std::vector<std::string> texts(const Json& spec, const char* field = "text") {
  Pipeline p(spec);
  return texts(p, field);
}

TEST(Mix, KeepsToItsWeights) {
  TempDir dir;
  const Json sources{lines(dir, "a", 100), lines(dir, "b", 300)};
  const auto all = texts(spec_of("mix", {{"sources", sources}, {"weights", {1, 3}}}));
  ASSERT_EQ(all.size(), 400u);
  double of_a = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    of_a += all[i][0] == 'a';
    ASSERT_NEAR(of_a, static_cast<double>(i + 1) / 4, 1.0) << i;
  }
}

TEST(Mix, EndsAsItIsTold) {
  TempDir dir;
  const Json sources{lines(dir, "a", 5), lines(dir, "b", 12)};
  const auto count = [&](const char* when) {
    std::map<char, int> out;
    for (const std::string& line :
         texts(spec_of("mix", {{"sources", sources}, {"stop_when", when}})))
      ++out[line[0]];
    return out;
  };
  EXPECT_EQ(count("all"), (std::map<char, int>{{'a', 5}, {'b', 12}}));
  EXPECT_EQ(count("first"), (std::map<char, int>{{'a', 5}, {'b', 5}}));
  const auto again = count("again");
  EXPECT_EQ(again.at('b'), 12);
  EXPECT_NEAR(again.at('a'), 12, 1);
}

// What is read again comes in another order, also in the next pass.
TEST(Mix, EachRestartHasAnOrderOfItsOwn) {
  TempDir dir;
  for (const char name : {'0', '1', '2', '3', '4', '5', '6', '7'}) lines(dir, cat("a", name), 1);
  const Json sources{lines(dir, "b", 24), {{"stage", "text_lines"}, {"pattern", dir.path("a*")}}};
  Json spec = spec_of("mix", {{"sources", sources}, {"stop_when", "again"}}, {{"epochs", 1}});
  spec["stages"].push_back({{"stage", "repeat"}, {"count", 2}});
  std::vector<std::string> passes;  // of a
  for (const std::string& line : texts(spec)) {
    if (line == "b0") passes.emplace_back();
    if (line[0] == 'a') passes.back() += line[1];
  }
  ASSERT_EQ(passes.size(), 2u);
  std::set<std::string> orders;
  for (const std::string& pass : passes)
    for (size_t round = 0; round < 3; ++round) orders.insert(pass.substr(8 * round, 8));
  EXPECT_EQ(orders.size(), 6u);
}

TEST(Mix, BranchesMayMap) {
  TempDir dir;
  for (const char* root : {"x", "y"})
    for (const char* name : {"/cat/1.png", "/dog/2.png"}) {
      const std::string path = dir.path(root) + name;
      std::filesystem::create_directories(std::filesystem::path(path).parent_path());
      write(path, root);
    }
  const Json x{{{"stage", "folder"}, {"root", dir.path("x")}}, {{"stage", "label"}}};
  const Json y{{{"stage", "folder"}, {"root", dir.path("y")}},
               {{"stage", "label"}},
               {{"stage", "keep"}, {"fields", "label"}}};
  for (const Item& item : read_all(spec_of("mix", {{"sources", {x, y}}})))
    EXPECT_EQ(item.find("png") == nullptr, item.fields.size() == 1);
  const Json wrong{x[0], {{"stage", "shuffle"}}};
  EXPECT_HAS(failure(spec_of("mix", {{"sources", {wrong}}})), "'shuffle' cannot stand there");
  const Json drops{x[0], {{"stage", "filter"}, {"field", "label"}}};
  EXPECT_HAS(failure(spec_of("mix", {{"sources", {drops}}})), "belongs after 'mix'");
  EXPECT_HAS(failure(spec_of("mix", {{"sources", {{{"stage", "foldr"}}}}})), "folder");
  EXPECT_HAS(failure(spec_of("mix", {{"sources", Json::array()}})), "at least one");
  EXPECT_HAS(failure(spec_of("mix", {{"sources", {x}}, {"weights", {1, 2}}})), "2 weights for 1");
}

TEST(Zip, PutsFieldsTogether) {
  TempDir dir;
  const Json a = lines(dir, "a", 9), b = lines(dir, "b", 9);
  for (const Item& item : read_all(spec_of("zip", {{"sources", {a, b}}, {"prefixes", ",other_"}})))
    EXPECT_EQ(text(item, "text").substr(1), text(item, "other_text").substr(1));
  EXPECT_HAS(failure(spec_of("zip", {{"sources", {a, b}}})), "field 'text'");
}

TEST(Zip, LengthsMustAgreeUnlessToldOtherwise) {
  TempDir dir;
  const Json a = lines(dir, "a", 9), b = lines(dir, "b", 4);
  Json options{{"sources", {a, b}}, {"prefixes", ",other_"}};
  EXPECT_HAS(failure(spec_of("zip", options)), "source 2 ends after 4 samples");
  options["equal_lengths"] = false;
  EXPECT_EQ(texts(spec_of("zip", options)).size(), 4u);
}

TEST(Zip, LengthsThatDifferAreOneBadRecord) {
  TempDir dir;
  const Json a = lines(dir, "a", 20), b = lines(dir, "b", 8);
  for (const Json& sources : {Json{a, b}, Json{b, a}}) {
    Pipeline p(spec_of("zip", {{"sources", sources}, {"prefixes", ",other_"}},
                       {{"epochs", 2}, {"on_error", "skip"}}));
    for (int epoch = 0; epoch < 2; ++epoch) EXPECT_EQ(read_all(p).size(), 8u);
    EXPECT_EQ(p.stats()["bad_record_times"], 2) << "once in each epoch";
  }
}

// The rest of a shard that is cut off is lost. What comes after it has other partners.
TEST(Zip, EndsWhereItCannotKnowWhatBelongsTogether) {
  TempDir dir;
  const Json whole{{"stage", "webdataset"},
                   {"pattern", make_shards(dir, 3, 20, 0, 10, ".tar")},
                   {"shuffle_shards", false}};
  std::filesystem::create_directory(dir.path("cut"));
  std::filesystem::copy(dir.path("shard-1.tar"), dir.path("cut/shard-1.tar"));
  std::filesystem::resize_file(dir.path("cut/shard-1.tar"), 8000);
  Json cut = whole;
  cut["pattern"] = cat("{", dir.path("shard-0.tar"), ",", dir.path("cut/shard-1.tar"), ",",
                       dir.path("shard-2.tar"), "}");
  Pipeline p(spec_of("zip", {{"sources", {whole, cut}}, {"prefixes", ",other_"}},
                     {{"epochs", 2}, {"on_error", "skip"}}));
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto items = read_all(p);
    EXPECT_GT(items.size(), 20u);
    EXPECT_LT(items.size(), 40u);
    for (const Item& item : items) EXPECT_EQ(text(item, "txt"), text(item, "other_txt"));
  }
  ASSERT_EQ(p.stats()["bad_records"], 1);
  EXPECT_HAS(p.bad_record_list()[0]["reason"].get<std::string>(), "zip ends its pass here");
}

TEST(Interleave, TakesFilesInTurnAndErrorsInTheirPlace) {
  TempDir dir;
  for (const char name : {'a', 'b', 'c'}) lines(dir, std::string("f") + name, 6);
  const Json inner{{"stage", "text_lines"}, {"pattern", dir.path("f*")}, {"shuffle_shards", false}};
  const auto all = texts(spec_of("interleave", {{"sources", {inner}}, {"cycle_length", 3}}));
  ASSERT_EQ(all.size(), 18u);
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(all[i], std::string("f") + "abc"[i % 3] + std::to_string(i / 3));
  write(dir.path("j1"), "{\"x\": 1}\nbad\n{\"x\": 3}\n");
  write(dir.path("j2"), "{\"x\": 4}\n{\"x\": 5}\n{\"x\": 6}\n");
  const Json json{{"stage", "jsonl"}, {"pattern", dir.path("j*")}, {"columns", "x:i32"}};
  Pipeline p(
      spec_of("interleave", {{"sources", {json}}, {"cycle_length", 2}}, {{"on_error", "skip"}}));
  EXPECT_EQ(read_all(p).size(), 5u);
  EXPECT_HAS(p.bad_record_list().dump(), "line 2");
}

TEST(Interleave, OfAnInterleaveGivesEachSampleOnce) {
  TempDir dir;
  std::set<std::string> expected;
  for (const char name : {'a', 'b', 'c', 'd', 'e'}) {
    lines(dir, std::string("f") + name, 6);
    for (int i = 0; i < 6; ++i) expected.insert(cat("f", name, i));
  }
  const Json files{{"stage", "text_lines"}, {"pattern", dir.path("f*")}};
  const Json inner{{"stage", "interleave"}, {"sources", {files}}, {"cycle_length", 2}};
  const auto all = texts(spec_of("interleave", {{"sources", {inner}}, {"cycle_length", 3}}));
  EXPECT_EQ(all.size(), 30u);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()), expected);
}

TEST(Interleave, StopsInTheMiddle) {
  TempDir dir;
  lines(dir, "f", 1000);
  for (int i = 0; i < 20; ++i) {
    Pipeline p(spec_of("interleave", {{"sources", {lines(dir, "f", 1000)}}, {"ahead", 2}}));
    Item item;
    for (int k = 0; k < i; ++k) p.next(item);
  }
}

int64_t decoded(const Pipeline& p) {
  const Json stats = p.stats();
  for (const Json& stage : stats["stages"])
    if (stage["name"] == "decode") return stage["items_in"];
  return -1;
}

// Epochs with and without a cache at different places, in memory and on disk, shared, large and too
// small.
TEST(Cache, ChangesCostsAndNothingElse) {
  TempDir dir;
  const std::string tars = make_shards(dir, 3, 20, 8);
  for (int i = 0; i < 60; ++i) {
    const std::string folder = dir.path("root/" + std::to_string(i % 3));
    std::filesystem::create_directories(folder);
    write(folder + "/" + std::to_string(i) + ".png", make_png(8, 8, 3, i));
  }
  const Json indexed{{"stage", "folder"}, {"root", dir.path("root")}};
  const Json sharded{{"stage", "webdataset"}, {"pattern", tars}};
  const Json mixed{{"stage", "mix"}, {"sources", {indexed, sharded}}, {"weights", {1, 2}}};
  for (const Json& source : {indexed, sharded, mixed})
    for (const Json& cache :
         {Json{{"stage", "cache"}}, Json{{"stage", "cache"}, {"bytes", 3000}},
          Json{{"stage", "cache"}, {"directory", dir.path("scratch")}},
          Json{{"stage", "cache"},
               {"shared", dir.path("shared-" + source["stage"].get<std::string>())}}})
      for (const int world : {1, 2}) {
        const Json behind{{{"stage", "echo"}, {"factor", 2}, {"buffer", 8}},
                          {{"stage", "random_crop"}, {"pad", 2}},
                          {{"stage", "shuffle"}, {"buffer", 10}}};
        const auto spec = [&](const std::vector<Json>& middle) {
          // Short queues: the source must not read an epoch ahead of the cache.
          Json out{{"epochs", 4},
                   {"seed", 5},
                   {"world_size", world},
                   {"queue_items", 4},
                   {"stages", {source}}};
          for (const Json& stage : middle) out["stages"].push_back(stage);
          for (const Json& stage : behind) out["stages"].push_back(stage);
          return out;
        };
        const Json decode{{"stage", "decode"}, {"channels", "rgb"}};
        const Json shuffle{{"stage", "shuffle"}, {"buffer", 5}};
        // One that is too small for any sample does nothing.
        const Json none{{"stage", "cache"}, {"bytes", 1}};
        Pipeline plain(spec({shuffle, decode, none})), cached(spec({shuffle, decode, cache}));
        for (int epoch = 0; epoch < 4; ++epoch)
          ASSERT_EQ(digest_of_epoch(plain), digest_of_epoch(cached)) << source << cache << epoch;
        if (!cache.contains("bytes") && world == 1) {
          EXPECT_LE(decoded(cached), decoded(plain) / 4 + 60) << source;
        }
        EXPECT_LT(decoded(cached), decoded(plain)) << source << cache;
        Pipeline original(spec({shuffle, decode, cache}));
        for (int epoch = 0; epoch < 2; ++epoch) digest_of_epoch(original);
        digest_of_epoch(original, 17);
        Pipeline restored(spec({shuffle, decode, cache}));
        restored.restore(original.save());
        for (int epoch = 0; epoch < 2; ++epoch)
          ASSERT_EQ(digest_of_epoch(original), digest_of_epoch(restored)) << source << cache;
      }
}

TEST(Cache, TellsRecordsOfMixturesWithinMixturesApart) {
  TempDir dir;
  const Json inner{{"stage", "mix"}, {"sources", {lines(dir, "a", 9), lines(dir, "b", 9)}}};
  const Json other{{"stage", "mix"}, {"sources", {lines(dir, "c", 9), lines(dir, "d", 9)}}};
  Json spec = spec_of("mix", {{"sources", {inner, other}}}, {{"epochs", 2}});
  Pipeline uncached(spec);
  const auto first = texts(uncached), second = texts(uncached);
  for (const Json& options : {Json::object(), Json{{"shared", dir.path("cache")}}}) {
    Json cache = options;
    cache["stage"] = "cache";
    Json cached = spec;
    cached["stages"].push_back(cache);
    Pipeline p(cached);
    EXPECT_EQ(texts(p), first);
    EXPECT_EQ(texts(p), second);
  }
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 36u);
}

TEST(Cache, RefusesPlacesWhereItWouldChangeResults) {
  TempDir dir;
  const Json source = lines(dir, "a", 5), cache{{"stage", "cache"}};
  const auto with = [&](const std::vector<Json>& stages) {
    Json out{{"stages", {source}}};
    for (const Json& stage : stages) out["stages"].push_back(stage);
    return failure(out);
  };
  EXPECT_HAS(with({{{"stage", "flip"}}, cache}), "'flip', which is random");
  EXPECT_HAS(with({{{"stage", "padded_batch"}, {"size", 2}}, cache}), "puts samples together");
  EXPECT_HAS(with({cache, cache}), "one cache");
  const Json zip{{"stage", "zip"}, {"sources", {source}}};
  EXPECT_HAS(failure({{"stages", {zip, cache}}}), "no numbers");
  const Json random{{"stage", "mix"}, {"sources", {{source, {{"stage", "flip"}}}}}};
  EXPECT_HAS(failure({{"stages", {random, cache}}}), "changed at random");
}

TEST(Bucket, PutsSimilarLengthsTogether) {
  TempDir dir;
  std::string all;
  Rng rng(4);
  for (int i = 0; i < 400; ++i) all += std::string(1 + rng.below(64), 'x') + "\n";
  write(dir.path("t"), all);
  const auto padding = [&](const std::vector<Json>& stages) {
    Json spec{{"stages", {{{"stage", "text_lines"}, {"pattern", dir.path("t")}}}}};
    for (const Json& stage : stages) spec["stages"].push_back(stage);
    spec["stages"].push_back({{"stage", "padded_batch"}, {"size", 8}});
    spec["epochs"] = 1;
    int64_t cells = 0, samples = 0;
    for (const Item& item : read_all(spec)) {
      cells += item.find("text")->count();
      samples += item.batch.size;
    }
    EXPECT_EQ(samples, 400);
    return cells;
  };
  const Json bucket{
      {"stage", "bucket"}, {"field", "text"}, {"size", 8}, {"boundaries", {16, 32, 48}}};
  const auto content = static_cast<int64_t>(all.size()) - 400;
  EXPECT_GT(padding({}), content * 3 / 2);
  EXPECT_LT(padding({bucket}), content * 5 / 4);
  Json wrong = bucket;
  wrong["boundaries"] = {5, 5};
  EXPECT_HAS(failure({{"stages", {lines(dir, "a", 3), wrong}}}), "must rise");
}

TEST(PackSequences, FillsRowsAndKeepsEverySequence) {
  TempDir dir;
  std::string all;
  Rng rng(4);
  std::multiset<std::string> expected;
  for (int i = 0; i < 300; ++i) {
    const std::string line(1 + rng.below(30), static_cast<char>('a' + i % 26));
    expected.insert(line);
    all += line + "\n";
  }
  write(dir.path("t"), all);
  const Json source{{"stage", "text_lines"}, {"pattern", dir.path("t")}};
  const Json spec{
      {"epochs", 1},
      {"stages", {source, {{"stage", "pack_sequences"}, {"field", "text"}, {"length", 64}}}}};
  std::multiset<std::string> found;
  size_t rows = 0;
  for (const Item& item : read_all(spec)) {
    ++rows;
    const auto row = values<char>(item, "text");
    const auto segment = values<int32_t>(item, "segment"),
               position = values<int32_t>(item, "position");
    ASSERT_EQ(row.size(), 64u);
    std::map<int32_t, std::string> parts;
    for (size_t i = 0; i < row.size(); ++i) {
      if (segment[i] == 0) {
        EXPECT_EQ(row[i], 0);
        continue;
      }
      EXPECT_EQ(static_cast<size_t>(position[i]), parts[segment[i]].size());
      parts[segment[i]] += row[i];
    }
    for (const auto& [n, part] : parts) found.insert(part);
  }
  EXPECT_EQ(found, expected);
  EXPECT_LE(static_cast<double>(rows) * 64, 1.06 * static_cast<double>(all.size() - 300))
      << "little padding";
}

TEST(PackSequences, RowsAreRepeatedAndNotTheirSequences) {
  TempDir dir;
  const Json pack{{"stage", "pack_sequences"}, {"field", "text"}, {"length", 8}},
      echo{{"stage", "echo"}, {"factor", 2}, {"mode", "together"}};
  const auto with = [&](const std::vector<Json>& stages) {
    Json spec{{"epochs", 1}, {"stages", {lines(dir, "a", 40)}}};
    for (const Json& stage : stages) spec["stages"].push_back(stage);
    return spec;
  };
  EXPECT_HAS(failure(with({echo, pack})),
             "pipeline stage 3 ('pack_sequences') would put fresh sequences and repeats of stage 2 "
             "('echo') into one row: put 'echo' behind it");
  Pipeline p(with({pack, echo}));
  const size_t rows = read_all(p).size();
  EXPECT_GT(rows, 20u);
  EXPECT_EQ(p.stats()["consumer"]["fresh"], rows / 2);
  EXPECT_EQ(p.stats()["consumer"]["echoed"], rows / 2);
}

TEST(PackSequences, TooLongIsSplitCutOrAnError) {
  TempDir dir;
  write(dir.path("t"), "abcdefghij\nxy\n");
  const auto with = [&](const char* too_long) {
    return Json{{"epochs", 1},
                {"stages",
                 {{{"stage", "text_lines"}, {"pattern", dir.path("t")}},
                  {{"stage", "pack_sequences"},
                   {"field", "text"},
                   {"length", 4},
                   {"too_long", too_long}}}}};
  };
  const auto rows = texts(with("split"));
  EXPECT_EQ(rows, (std::vector<std::string>{"abcd", "efgh", "ijxy"}));
  EXPECT_EQ(texts(with("cut")).size(), 2u);
  EXPECT_HAS(failure(with("error")), "a sequence of 10 is longer than a row of 4");
}

}  // namespace
}  // namespace etr::test
