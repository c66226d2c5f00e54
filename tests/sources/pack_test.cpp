// Packing folders of images, and the source that reads such a folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "core/error.h"
#include "core/platform.h"
#include "pipeline/pipeline.h"
#include "sources/pack.h"
#include "support/data.h"

namespace etr::test {
namespace {

using pipeline::Item;
using pipeline::Pipeline;

Options packing(const Json& options) { return {sources::pack_schema(), "pack", options}; }

void write_file(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::vector<std::string> keys_of(const std::string& pattern) {
  Pipeline p({{"epochs", 1}, {"stages", {Json{{"stage", "webdataset"}, {"pattern", pattern}}}}});
  std::vector<std::string> out;
  Item item;
  while (p.next(item) == Pipeline::Next::item) out.push_back(item.origin->key);
  std::sort(out.begin(), out.end());
  return out;
}

TEST(Pack, ShardsDoNotGoAmongTheImages) {
  TempDir dir;
  write_file(dir.path("in/cat/one.png"), make_png(4, 4, 1, 1));
  for (const char* root : {"in", "in/", "in/cat/.."})
    for (const char* prefix : {"in/train", "in/shards/train", "in/cat/train", "in/../in/train"}) {
      try {
        sources::pack_folder(dir.path(root), dir.path(prefix), packing(Json::object()), nullptr);
        ADD_FAILURE() << root << " " << prefix;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("choose a prefix outside of it"),
                  std::string::npos)
            << error.what();
      }
    }
  EXPECT_FALSE(std::filesystem::exists(dir.path("in/shards")));
  sources::pack_folder(dir.path("in"), dir.path("in-shards/train"), packing(Json::object()),
                       nullptr);
}

TEST(Pack, MakesTheFolderAndKeepsNames) {
  TempDir dir;
  const std::string image = make_png(4, 4, 1, 1), jpeg = "\xff\xd8\xff\xe0 is how a JPEG begins";
  write_file(dir.path("in/cat/first.one.png"), image);
  write_file(dir.path("in/cat/same.png"), image);
  write_file(dir.path("in/cat/same.JPEG"), jpeg);
  write_file(dir.path("in/a dog/lies.png"), jpeg);
  const std::string longest = std::string(120, 'x');
  write_file(dir.path("in/cat/" + longest + ".png"), image);
  const sources::PackResult packed = sources::pack_folder(
      dir.path("in"), dir.path("new/folder/train"), packing(Json::object()), nullptr);
  EXPECT_EQ(packed.samples, 5);
  EXPECT_TRUE(packed.skipped.empty());
  // No key is there twice, and none has a dot in its name: readers would join or cut them.
  EXPECT_EQ(keys_of(dir.path("new/folder/train-*.tar.zst")),
            (std::vector<std::string>{"a dog/lies", "cat/first_one", "cat/same", "cat/same-2",
                                      "cat/" + longest}));
  EXPECT_EQ(platform::read_file(dir.path("new/folder/classes.txt")), "a dog\ncat\n");
  EXPECT_EQ(packed.classes_file, dir.path("new/folder/classes.txt"));
  EXPECT_THROW(
      sources::pack_folder(dir.path("in"), dir.path("new/"), packing(Json::object()), nullptr),
      Error)
      << "a prefix without a name";
}

TEST(Pack, SaysWhatItLeavesOut) {
  TempDir dir;
  write_file(dir.path("in/cat/1.png"), make_png(4, 4, 1, 1));
  write_file(dir.path("in/cat/notes.txt"), "not an image");
  write_file(dir.path("in/cat/empty.png"), "");
  write_file(dir.path("in/cat/README"), "no extension");
  write_file(dir.path("in/cat/.hidden.png"), make_png(4, 4, 1, 1));
  write_file(dir.path("in/cat/deeper/2.png"), make_png(4, 4, 1, 1));
  write_file(dir.path("in/.checkpoints/3.png"), make_png(4, 4, 1, 1));
  write_file(dir.path("in/stray.png"), make_png(4, 4, 1, 1));
  const sources::PackResult packed =
      sources::pack_folder(dir.path("in"), dir.path("out/t"), packing(Json::object()), nullptr);
  EXPECT_EQ(packed.samples, 1);
  EXPECT_EQ(packed.classes, std::vector<std::string>{"cat"}) << "a hidden folder is no class";
  std::map<std::string, std::string> reasons;
  for (const sources::Skipped& file : packed.skipped) reasons[file.name] = file.reason;
  EXPECT_EQ(reasons,
            (std::map<std::string, std::string>{{"cat/notes.txt", "not a PNG or JPEG image"},
                                                {"cat/empty.png", "not a PNG or JPEG image"},
                                                {"cat/README", "without an extension"},
                                                {"cat/.hidden.png", "hidden"},
                                                {"cat/deeper", "a folder within a class folder"},
                                                {".checkpoints", "a hidden folder"},
                                                {"stray.png", "not in a class folder"}}));
}

TEST(Pack, LineBreaksInNames) {
  TempDir dir;
  write_file(dir.path("in/cat/1.png"), make_png(4, 4, 1, 1));
  write_file(dir.path("in/cat/2\n3.png"), make_png(4, 4, 1, 1));
  const auto pack = [&](const char* prefix, const char* format) {
    return sources::pack_folder(dir.path("in"), dir.path(prefix), packing({{"format", format}}),
                                nullptr);
  };
  const sources::PackResult packed = pack("out/t", "webdataset");
  EXPECT_EQ(packed.samples, 1);
  ASSERT_EQ(packed.skipped.size(), 1u);
  EXPECT_EQ(packed.skipped[0].name, "cat/2\n3.png");
  EXPECT_NE(packed.skipped[0].reason.find("line break"), std::string::npos);
  EXPECT_EQ(pack("fast/t", "fast").samples, 2);
  write_file(dir.path("in/c\nd/1.png"), make_png(4, 4, 1, 1));
  EXPECT_THROW(pack("more/t", "webdataset"), Error);
  EXPECT_FALSE(std::filesystem::exists(dir.path("more"))) << "nothing is packed first";
}

// Shorter than what tells an image's format; the file's bytes are all that is packed.
TEST(Pack, TakesFilesOfAFewBytesAsTheyAre) {
  for (size_t size = 3; size <= 9; ++size) {
    TempDir dir;
    const std::string bytes = std::string("\xff\xd8\xff").append(size - 3, 'x');
    write_file(dir.path("in/cat/1.jpg"), bytes);
    const sources::PackResult packed =
        sources::pack_folder(dir.path("in"), dir.path("out/t"), packing({{"level", 0}}), nullptr);
    EXPECT_EQ(packed.samples, 1);
    Pipeline p({{"epochs", 1},
                {"stages", {Json{{"stage", "webdataset"}, {"pattern", packed.shards[0]}}}}});
    Item item;
    ASSERT_EQ(p.next(item), Pipeline::Next::item);
    EXPECT_EQ(item.find("jpg")->size_bytes(), size);
  }
}

TEST(Pack, FurtherSetsTakeTheNumbersOfTheFirst) {
  TempDir dir;
  for (const char* name : {"ant", "bee", "cat"})
    write_file(dir.path("train/" + std::string(name) + "/1.png"), make_png(4, 4, 1, 1));
  write_file(dir.path("test/cat/1.png"), make_png(4, 4, 1, 1));
  sources::pack_folder(dir.path("train"), dir.path("s/train"), packing(Json::object()), nullptr);
  sources::pack_folder(dir.path("test"), dir.path("s/test"), packing(Json::object()), nullptr);
  Pipeline p({{"epochs", 1},
              {"stages",
               {Json{{"stage", "webdataset"}, {"pattern", dir.path("s/test-*")}},
                Json{{"stage", "label"}}}}});
  Item item;
  ASSERT_EQ(p.next(item), Pipeline::Next::item);
  EXPECT_EQ(pipeline::require_field(item, "label").view<int32_t>()[0], 2)
      << "not 0, its place in the test set";
  write_file(dir.path("test/dog/1.png"), make_png(4, 4, 1, 1));
  EXPECT_THROW(
      sources::pack_folder(dir.path("test"), dir.path("s/more"), packing(Json::object()), nullptr),
      Error);
}

TEST(Pack, RefusesOrReplacesAnEarlierPacking) {
  TempDir dir;
  for (int i = 0; i < 10; ++i)
    write_file(dir.path("in/cat/" + std::to_string(i) + ".png"), make_png(4, 4, 1, i));
  const auto pack = [&](const Json& options) {
    return sources::pack_folder(dir.path("in"), dir.path("out/train"), packing(options), nullptr);
  };
  EXPECT_EQ(pack({{"per_shard", 2}}).shards.size(), 5u);
  EXPECT_THROW(pack({{"per_shard", 5}}), Error)
      << "three old shards would be read with the new ones";
  EXPECT_EQ(keys_of(dir.path("out/train-*.tar.zst")).size(), 10u) << "nothing was lost";
  EXPECT_EQ(pack({{"per_shard", 5}, {"overwrite", true}}).shards.size(), 2u);
  EXPECT_EQ(keys_of(dir.path("out/train-*.tar.zst")).size(), 10u);
}

std::string error_of_packing(const std::string& from, const std::string& prefix,
                             const Json& options) {
  try {
    sources::pack_folder(from, prefix, packing(options), nullptr);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Pack, LosesNothingOfAnEarlierPackingByARequestThatItRefuses) {
  TempDir dir;
  write_file(dir.path("in/cat/1.png"), make_png(4, 4, 1, 1));
  write_file(dir.path("other/dog/1.png"), make_png(4, 4, 1, 1));
  write_file(dir.path("texts/cat/1.txt"), "no image");
  const std::string prefix = dir.path("out/train");
  ASSERT_EQ(error_of_packing(dir.path("in"), prefix, Json::object()), "");
  const Json again = {{"overwrite", true}};
  EXPECT_NE(error_of_packing(dir.path("other"), prefix, again).find("does not list the class"),
            std::string::npos);
  EXPECT_NE(error_of_packing(dir.path("texts"), prefix, again).find("no PNG or JPEG images"),
            std::string::npos);
  EXPECT_EQ(keys_of(prefix + "-*.tar.zst"), std::vector<std::string>{"cat/1"});
}

TEST(Pack, WritesNoClassesWithoutSamples) {
  TempDir dir;
  write_file(dir.path("in/cat/1.txt"), "no image");
  EXPECT_NE(error_of_packing(dir.path("in"), dir.path("out/train"), Json::object()), "");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path("out")));
}

TEST(Pack, LeavesNoStaleValidationShards) {
  TempDir dir;
  for (int i = 0; i < 4; ++i) write_file(dir.path(cat("in/cat/", i, ".png")), make_png(4, 4, 1, i));
  const auto pack = [&](const Json& options) {
    return error_of_packing(dir.path("in"), dir.path("out/train"), options);
  };
  ASSERT_EQ(pack({{"validation", 0.5}, {"per_shard", 1}}), "");
  const std::string stale = pack({{"overwrite", true}});
  EXPECT_NE(stale.find("validation-000000.tar.zst' is there from an earlier packing"),
            std::string::npos)
      << stale;
  EXPECT_NE(stale.find("remove the 2 validation shards"), std::string::npos) << stale;
  EXPECT_EQ(keys_of(dir.path("out/train-*.tar.zst")).size(), 2u) << "nothing was lost";
  // No class has two samples now: what was set aside before is gone all the same.
  for (int i = 1; i < 4; ++i) std::filesystem::remove(dir.path(cat("in/cat/", i, ".png")));
  ASSERT_EQ(pack({{"validation", 0.5}, {"overwrite", true}}), "");
  EXPECT_FALSE(std::filesystem::exists(dir.path("out/validation-000000.tar.zst")));
}

TEST(Pack, FastShardsLeaveOutWhatCannotBeDecoded) {
  TempDir dir;
  for (int i = 0; i < 4; ++i) write_file(dir.path(cat("in/cat/", i, ".png")), make_png(4, 4, 1, i));
  write_file(dir.path("in/cat/broken.png"), make_png(4, 4, 1, 9).substr(0, 40));
  const sources::PackResult packed =
      sources::pack_folder(dir.path("in"), dir.path("out/train"),
                           packing({{"format", "fast"}, {"per_shard", 1}}), nullptr);
  EXPECT_EQ(packed.samples, 4);
  EXPECT_EQ(packed.shards.size(), 4u);
  ASSERT_EQ(packed.skipped.size(), 1u);
  EXPECT_EQ(packed.skipped[0].name, "cat/broken.png");
  EXPECT_NE(packed.skipped[0].reason, "");
}

TEST(Pack, SetsAShareOfEachClassAside) {
  TempDir dir;
  for (int i = 0; i < 30; ++i)
    write_file(dir.path(cat("in/",
                            i < 20   ? "many"
                            : i < 28 ? "some"
                                     : "two",
                            "/", i, ".png")),
               make_png(4, 4, 1, i));
  write_file(dir.path("in/one/1.png"), make_png(4, 4, 1, 1));
  const sources::PackResult packed = sources::pack_folder(dir.path("in"), dir.path("out/train"),
                                                          packing({{"validation", 0.2}}), nullptr);
  EXPECT_EQ(packed.samples, 31);
  EXPECT_EQ(packed.validation_samples, 7) << "4 of 20, 2 of 8, 1 of 2, and none of one";
  std::vector<std::string> all = keys_of(dir.path("out/*.tar.zst"));
  EXPECT_EQ(all.size(), 31u);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 31u)
      << "each sample is in one set";
  EXPECT_EQ(keys_of(dir.path("out/validation-*.tar.zst")).size(), 7u);
}

TEST(Pack, LeavesNoShardWhenItIsStopped) {
  TempDir dir;
  for (int i = 0; i < 200; ++i)
    write_file(dir.path("in/cat/" + std::to_string(i) + ".png"), make_png(4, 4, 1, i));
  EXPECT_THROW(
      sources::pack_folder(dir.path("in"), dir.path("out/train"), packing({{"per_shard", 20}}),
                           [](int64_t done, int64_t) { return done < 100; }),
      Error);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path("out")));
}

TEST(Pack, LeavesNoTrainingShardWithoutTheValidationShards) {
  TempDir dir;
  for (int i = 0; i < 20; ++i)
    write_file(dir.path("in/cat/" + std::to_string(i) + ".png"), make_png(4, 4, 1, i));
  const std::string in_the_way = dir.path("out/validation-000000.tar.zst");
  const auto progress = [&](int64_t done, int64_t total) {
    if (done == total) write_file(in_the_way + "/file", "no shard can get that name");
    return true;
  };
  std::string said;
  try {
    sources::pack_folder(dir.path("in"), dir.path("out/train"), packing({{"validation", 0.2}}),
                         progress);
  } catch (const Error& error) {
    said = error.what();
  }
  EXPECT_NE(said.find(in_the_way), std::string::npos) << said;
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path("out")))
    left.insert(entry.path().filename());
  EXPECT_EQ(left, (std::set<std::string>{"classes.txt", "validation-000000.tar.zst"}));
}

TEST(Folder, HoldsFilesOut) {
  TempDir dir;
  for (int i = 0; i < 25; ++i)
    write_file(dir.path(cat("in/",
                            i < 21   ? "many"
                            : i < 24 ? "few"
                                     : "one",
                            "/", 100 + i, ".png")),
               make_png(4, 4, 1, i));
  const auto keys = [&](const Json& more) {
    Json source{{"stage", "folder"}, {"root", dir.path("in")}};
    source.update(more);
    Pipeline p({{"epochs", 1}, {"stages", {source}}});
    std::set<std::string> out;
    Item item;
    while (p.next(item) == Pipeline::Next::item) out.insert(item.origin->key);
    return out;
  };
  const auto all = keys(Json::object()), train = keys({{"validation_every", 10}}),
             held = keys({{"validation_every", 10}, {"validation_only", true}});
  EXPECT_EQ(held, (std::set<std::string>{"few/122.png", "many/101.png", "many/111.png"}));
  EXPECT_EQ(train.size() + held.size(), all.size());
  for (const std::string& key : held) EXPECT_FALSE(train.contains(key));
  EXPECT_THROW(keys({{"validation_only", true}}), Error);
  EXPECT_THROW(keys({{"validation_every", 1}}), Error);
}

}  // namespace
}  // namespace etr::test
