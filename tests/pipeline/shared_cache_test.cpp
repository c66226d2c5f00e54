// The cache that processes share: what work it saves, and that it never yields a wrong sample.
#include "pipeline/shared_cache.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "core/log.h"
#include "core/platform_lock.h"
#include "pipeline/sample_bytes.h"
#include "support/data.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

namespace fs = std::filesystem;
using pipeline::Item;
using pipeline::Pipeline;
using pipeline::SharedCache;

constexpr int kImages = 60;

void put(const std::string& path, const std::string& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string get(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Images in three class folders, and a cache beside them. Collects warnings.
class SharedCacheTest : public ::testing::Test {
 protected:
  SharedCacheTest() {
    for (int i = 0; i < kImages; ++i) put(image(i), make_png(12, 9, 3, i));
    set_log_hook([this](LogLevel level, const char* line) {
      const std::scoped_lock lock(mutex_);
      if (level == LogLevel::warning) warnings_ += std::string(line) + "\n";
    });
  }
  ~SharedCacheTest() override { set_log_hook(nullptr); }

  std::string image(int i) const {
    return dir_.path("images/" + std::to_string(i % 3) + "/" + std::to_string(i) + ".png");
  }
  std::string folder() const { return dir_.path("cache"); }
  std::string data_file(int part = 0) const {
    return folder() + "/part-" + std::to_string(part) + ".data";
  }

  Json spec(const Json& more = Json::object(), const Json& cache = Json::object()) const {
    Json kept{{"stage", "cache"}, {"shared", folder()}};
    kept.update(cache);
    Json out{{"seed", 3}, {"epochs", 1}, {"stages", Json::array()}};
    out["stages"] = {Json{{"stage", "folder"}, {"root", dir_.path("images")}},
                     Json{{"stage", "decode"}, {"channels", "rgb"}},
                     Json{{"stage", "resize"}, {"height", 8}, {"width", 8}},
                     kept,
                     Json{{"stage", "random_crop"}, {"pad", 2}},
                     Json{{"stage", "shuffle"}, {"buffer", 10}},
                     Json{{"stage", "batch"}, {"size", 4}}};
    out.update(more);
    return out;
  }
  static Json without_cache(Json spec) {
    auto& stages = spec["stages"];
    for (size_t i = 0; i < stages.size(); ++i)
      if (stages[i]["stage"] == "cache") stages[i] = {{"stage", "cache"}, {"bytes", 1}};
    return spec;
  }

  std::string warnings() {
    const std::scoped_lock lock(mutex_);
    return warnings_;
  }

  TempDir dir_;

 private:
  std::mutex mutex_;
  std::string warnings_;
};

Json row_of(const Pipeline& p, const std::string& name) {
  const Json stats = p.stats();
  for (const Json& stage : stats["stages"])
    if (stage["name"] == name) return stage;
  return nullptr;
}
int64_t decoded(const Pipeline& p) { return row_of(p, "decode")["items_in"].get<int64_t>(); }
int64_t count(const Pipeline& p, const char* what) {
  return row_of(p, "cache")["cache"][what].get<int64_t>();
}

uint64_t digest(const Json& spec) {
  Pipeline p(spec);
  return digest_of_epoch(p);
}

std::string failure(const Json& spec) {
  return error_text([&] { digest(spec); });
}

#define EXPECT_HAS(text, part)                           \
  do {                                                   \
    const std::string all = (text);                      \
    EXPECT_NE(all.find(part), std::string::npos) << all; \
  } while (false)

TEST_F(SharedCacheTest, RanksMakeEachSampleOnceAndTheNextRunNone) {
  int64_t made = 0, recalled = 0;
  for (const int rank : {0, 1}) {
    const Json own = spec({{"rank", rank}, {"world_size", 2}});
    Pipeline p(own);
    EXPECT_EQ(digest_of_epoch(p), digest(without_cache(own)));
    made += decoded(p);
    EXPECT_EQ(count(p, "kept"), decoded(p));
  }
  EXPECT_EQ(made, kImages);
  // In another order, so that each rank needs samples that the other made.
  for (const int rank : {0, 1}) {
    const Json own = spec({{"rank", rank}, {"world_size", 2}, {"seed", 4}});
    Pipeline p(own);
    EXPECT_EQ(digest_of_epoch(p), digest(without_cache(own)));
    EXPECT_EQ(decoded(p), 0);
    EXPECT_EQ(count(p, "misses"), 0);
    EXPECT_EQ(count(p, "samples"), kImages);
    recalled += count(p, "hits");
  }
  EXPECT_EQ(recalled, kImages);
  EXPECT_EQ(warnings(), "");
}

TEST_F(SharedCacheTest, SeesWhatAnotherRankAddsWhileItRuns) {
  Pipeline first(spec({{"rank", 0}, {"world_size", 2}})),
      second(spec({{"rank", 1}, {"world_size", 2}}));
  Pipeline all(spec({{"queue_items", 1}, {"prefetch", 1}}));
  Item item;
  ASSERT_EQ(all.next(item), Pipeline::Next::item);  // has opened the cache, which is empty
  digest_of_epoch(first);
  digest_of_epoch(second);
  digest_of_epoch(all);
  EXPECT_LT(decoded(all), kImages) << "it decodes only what its queues hold";
  EXPECT_GT(count(all, "hits"), 0);
}

TEST_F(SharedCacheTest, GoesOnWithinAnEpochAsWithoutIt) {
  const Json own = spec({{"epochs", 3}}), plain = without_cache(own);
  Pipeline original(plain);
  digest_of_epoch(original);
  digest_of_epoch(original, 5);
  Pipeline cached(own);
  digest_of_epoch(cached);
  digest_of_epoch(cached, 5);
  Pipeline restored(own);
  restored.restore(cached.save());
  const uint64_t rest = digest_of_epoch(original);
  EXPECT_EQ(digest_of_epoch(restored), rest);
  EXPECT_EQ(decoded(restored), 0);
  EXPECT_EQ(digest_of_epoch(cached), rest);
  EXPECT_EQ(digest_of_epoch(cached), digest_of_epoch(original));
}

TEST_F(SharedCacheTest, RefusesWhatIsMadeOtherwise) {
  digest(spec());
  Json other = spec();
  other["stages"][2]["height"] = 6;
  EXPECT_HAS(failure(other), "the shared cache '" + folder() +
                                 "' holds samples of other data, stages or options: stage 3 "
                                 "('resize'): 'height' was 8 and is 6. Remove the folder");
  EXPECT_HAS(failure(spec(Json::object(), {{"version", "2"}})),
             "its 'version' was \"\" and is \"2\"");
  EXPECT_EQ(failure(spec({{"seed", 9}}, {{"bytes", 1 << 20}})), "") << "neither affects samples";
  put(dir_.path("images/2/new.png"), make_png(12, 9, 3, 99));
  EXPECT_HAS(failure(spec()), "'2/new.png' is new");
}

TEST_F(SharedCacheTest, BelongsToTheClassFoldersAlsoTheEmptyOnes) {
  digest(spec());
  const Json held = Json::parse(get(folder() + "/upstream.json"));
  fs::create_directory(dir_.path("images/00"));  // between 0 and 1, whose numbers it moves
  EXPECT_HAS(failure(spec()), "it had 3 class folders and has 4");
  fs::rename(dir_.path("images/2"), dir_.path("images/000"));
  fs::remove(dir_.path("images/00"));
  EXPECT_HAS(failure(spec()), "is missing");
  fs::rename(dir_.path("images/000"), dir_.path("images/2"));
  EXPECT_EQ(failure(spec()), "");
  Json earlier = held;  // of a version that did not note them
  earlier["data"].erase("classes");
  fs::remove_all(folder());
  put(folder() + "/upstream.json", earlier.dump(1) + "\n");
  EXPECT_EQ(failure(spec()), "");
}

TEST_F(SharedCacheTest, RefusesADescriptionThatMakesNoSense) {
  digest(spec());
  const Json right = Json::parse(get(folder() + "/upstream.json"));
  for (const char* text : {"", "[]", "5", "{}", R"({"stages": 5})", R"({"stages": [5]})"}) {
    put(folder() + "/upstream.json", text);
    EXPECT_HAS(failure(spec()), "Remove the folder");
  }
  for (const char* key : {"stages", "data", "changed", "fields", "format"})
    for (const Json& value : {Json(7), Json::array({1, "x"}), Json{{"files", {1}}}}) {
      Json wrong = right;
      wrong[key] = value;
      put(folder() + "/upstream.json", wrong.dump());
      EXPECT_HAS(failure(spec()), "Remove the folder");
    }
}

TEST_F(SharedCacheTest, BelongsToTheDataWhereverItLies) {
  digest(spec());
  fs::rename(dir_.path("images"), dir_.path("moved"));
  Json moved = spec();
  moved["stages"][0]["root"] = dir_.path("moved");
  Pipeline p(moved);
  EXPECT_EQ(digest_of_epoch(p), digest(without_cache(moved)));
  EXPECT_EQ(decoded(p), 0);
}

TEST_F(SharedCacheTest, MakesAgainWhatHasBeenChanged) {
  digest(spec());
  const auto before = fs::last_write_time(image(7));
  put(image(7), make_png(12, 9, 3, 1007));
  fs::last_write_time(image(7), before + std::chrono::seconds(2));
  for (const int expected : {1, 0}) {
    Pipeline p(spec());
    EXPECT_EQ(digest_of_epoch(p), digest(without_cache(spec())));
    EXPECT_EQ(decoded(p), expected);
  }
  EXPECT_HAS(warnings(), "the file of '1/7.png' has been changed");
}

TEST_F(SharedCacheTest, RefusesFilesOfManyRecordsThatHaveBeenChanged) {
  std::string lines;
  for (int i = 0; i < 9; ++i) lines += "line " + std::to_string(i) + "\n";
  put(dir_.path("a.txt"), lines);
  Json text{{"epochs", 1}, {"stages", Json::array()}};
  text["stages"] = {Json{{"stage", "text_lines"}, {"pattern", dir_.path("a.txt")}},
                    Json{{"stage", "cache"}, {"shared", folder()}}};
  digest(text);
  EXPECT_EQ(failure(text), "");
  const auto before = fs::last_write_time(dir_.path("a.txt"));
  lines[5] = 'x';
  put(dir_.path("a.txt"), lines);
  fs::last_write_time(dir_.path("a.txt"), before + std::chrono::seconds(2));
  EXPECT_HAS(failure(text), "'a.txt' has been changed since");
}

TEST_F(SharedCacheTest, TellsFieldsApart) {
  const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }    \n";
  std::string npy = std::string("\x93NUMPY\x01\x00", 8);
  npy += static_cast<char>(header.size());
  npy += '\0';
  put(dir_.path("x.npy"), npy + header + "abcd");
  const auto with = [&](const std::string& field) {
    Json out{{"epochs", 1}, {"stages", Json::array()}};
    out["stages"] = {Json{{"stage", "npy"}, {"arrays", field + "=" + dir_.path("x.npy")}},
                     Json{{"stage", "cache"}, {"shared", folder()}}};
    return out;
  };
  EXPECT_EQ(failure(with("x")), "");
  EXPECT_EQ(failure(with("x")), "");
  EXPECT_HAS(failure(with("y")), "its 'fields' was [\"x\"] and is [\"y\"]");
}

TEST_F(SharedCacheTest, WantsAVersionOfFunctions) {
  const pipeline::MapFunctions functions{{"f", [](Item&, uint64_t) {}}};
  Json with = spec();
  with["stages"][2] = {{"stage", "map"}, {"function", "f"}};
  const auto text = [&](const Json& spec) {
    return error_text([&] { Pipeline p(spec, functions); });
  };
  EXPECT_HAS(text(with), "give the cache a 'version'");
  with["stages"][3]["version"] = "of today";
  EXPECT_EQ(text(with), "");
  with["stages"][3] = {{"stage", "cache"}, {"version", "of today"}};
  EXPECT_HAS(text(with), "set 'shared'");
  with["stages"][3] = {{"stage", "cache"}, {"shared", folder()}, {"directory", folder()}};
  EXPECT_HAS(text(with), "set one of them");
}

TEST_F(SharedCacheTest, KeepsWithinItsBytes) {
  const uint64_t most = 20 * (8 * 8 * 3 + 100);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      const Json own = spec({{"rank", rank}, {"world_size", 3}}, {{"bytes", most}});
      EXPECT_EQ(digest(own), digest(without_cache(own)));
    });
  for (std::thread& rank : ranks) rank.join();
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder()))
    if (entry.path().extension() == ".data") bytes += entry.file_size() - 64;
  EXPECT_LE(bytes, most);
  EXPECT_GT(bytes, most / 2);
  Pipeline p(spec(Json::object(), {{"bytes", most}}));
  digest_of_epoch(p);
  EXPECT_EQ(decoded(p), kImages - count(p, "hits"));
  EXPECT_GT(count(p, "hits"), 5);
  EXPECT_EQ(count(p, "kept"), 0);
}

// Flips a bit or cuts off the end somewhere in a file. The samples must be right, or an error must
// say what to remove.
TEST_F(SharedCacheTest, DamageIsNeverASample) {
  const uint64_t right = digest(without_cache(spec()));
  std::mt19937 random(5);
  int made_again = 0, refused = 0;
  for (int round = 0; round < 60; ++round) {
    fs::remove_all(folder());
    ASSERT_EQ(digest(spec()), right);
    const std::string path = folder() + (round % 3 == 0   ? "/part-0.data"
                                         : round % 3 == 1 ? "/part-0.index"
                                                          : "/upstream.json");
    std::string bytes = get(path);
    const size_t at = random() % bytes.size();
    if (round % 2 == 0)
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    else
      bytes.resize(at);
    put(path, bytes);
    for (int run = 0; run < 2; ++run) {
      Pipeline p(spec());
      uint64_t found = 0;
      const std::string error = error_text([&] { found = digest_of_epoch(p); });
      if (!error.empty()) {
        EXPECT_HAS(error, "Remove the folder");
        ++refused;
        continue;
      }
      ASSERT_EQ(found, right) << path << " " << at;
      made_again += decoded(p) > 0;
      if (run == 1 && path.ends_with(".data") && at >= 64) {
        EXPECT_EQ(decoded(p), 0) << "the damaged sample was cached again";
      }
    }
  }
  EXPECT_GT(made_again, 10);
  EXPECT_GT(refused, 10);
}

// A cache without a pipeline, with made-up records.
class Alone {
 public:
  explicit Alone(const std::string& folder, int64_t bytes = 1 << 30) : cache_(folder, bytes, "") {
    cache_.open({{"stages", Json::array()},
                 {"data", nullptr},
                 {"changed", nullptr},
                 {"fields", Json::array()}});
  }
  static Item sample(uint64_t record) {
    Item item;
    item.record = record;
    Tensor values(DType::i32, {static_cast<int64_t>(100 + record % 50)});
    std::mt19937 random(static_cast<unsigned>(record));
    for (int32_t& value : values.mutable_view<int32_t>()) value = static_cast<int32_t>(random());
    item.set("values", std::move(values));
    item.set("label", Tensor::scalar<int32_t>(DType::i32, static_cast<int32_t>(record)));
    return item;
  }
  void keep(uint64_t record) { cache_.keep(sample(record)); }
  // Returns whether the cache has the record, and checks the sample if it does.
  bool gives(uint64_t record) {
    if (!cache_.has(record, 0)) return false;
    Item item;
    item.record = record;
    cache_.recall(item);
    const Item right = sample(record);
    for (const pipeline::Field& field : right.fields) {
      const auto a = field.tensor.bytes(), b = item.find(field.name)->bytes();
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << record;
    }
    return true;
  }
  Json stats() const { return cache_.stats(); }
  SharedCache& cache() { return cache_; }

 private:
  SharedCache cache_;
};

TEST(SampleBytes, AHeadThatIsMadeUpIsAnError) {
  const Item sample = Alone::sample(7);
  const std::vector<std::byte> head = pipeline::sample_head(sample);
  std::mt19937 random(8);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> made_up = head;
    for (size_t n = 1 + random() % 3; n > 0; --n)
      made_up[random() % made_up.size()] = static_cast<std::byte>(random());
    if (random() % 4 == 0) made_up.resize(random() % made_up.size());
    Item item;
    item.record = 7;
    const std::string error =
        error_text([&] { pipeline::read_sample_head(made_up, sample.size_bytes(), item); });
    refused += !error.empty();
    if (error.empty()) {
      EXPECT_EQ(item.size_bytes(), sample.size_bytes());
    }
  }
  EXPECT_GT(refused, 10000);
  Item item;
  item.record = 7;
  pipeline::read_sample_head(head, sample.size_bytes(), item);
  EXPECT_EQ(item.find("values")->shape(), sample.find("values")->shape());
}

// Starts this program again to run one of the disabled tests below. fork() alone would not do:
// locks of other threads would stay in an undefined state.
pid_t start_child(const char* test, const std::string& folder, int number) {
  setenv("ECHOTRAIN_CACHE_FOLDER", folder.c_str(), 1);
  setenv("ECHOTRAIN_CACHE_NUMBER", std::to_string(number).c_str(), 1);
  const std::string filter = std::string("--gtest_filter=SharedCacheChild.DISABLED_") + test;
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(300);
  execl("/proc/self/exe", "pipeline_tests", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
        filter.c_str(), nullptr);
  _exit(127);
}

int end_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

class SharedCacheChild : public ::testing::Test {
 protected:
  void SetUp() override {
    const char *folder = std::getenv("ECHOTRAIN_CACHE_FOLDER"),
               *number = std::getenv("ECHOTRAIN_CACHE_NUMBER");
    if (!folder || !number) GTEST_SKIP() << "other tests start it";
    folder_ = folder;
    number_ = std::atoi(number);
  }
  std::string folder_;
  int number_ = 0;
};

TEST_F(SharedCacheChild, DISABLED_KeepsUntilItIsKilled) {
  Alone cache(folder_);
  for (uint64_t record = 0;; ++record) {
    if (record % 16 == 0) {
      ASSERT_EQ(write(number_, "x", 1), 1);
    }
    cache.keep(record);
  }
}

TEST_F(SharedCacheTest, AWriterThatIsKilledLeavesNothingBad) {
  std::mt19937 random(6);
  uint64_t found = 0;
  for (int round = 0; round < 10; ++round) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = start_child("KeepsUntilItIsKilled", folder(), ready[1]);
    close(ready[1]);
    char some = 0;
    for (size_t i = 0, wanted = 2 + random() % 20; i < wanted; ++i) {
      ASSERT_EQ(read(ready[0], &some, 1), 1);
    }
    kill(child, SIGKILL);
    end_of(child);
    close(ready[0]);
    Alone cache(folder());
    uint64_t now = 0;
    while (cache.gives(now)) ++now;
    EXPECT_GE(now, found) << "kept samples remain";
    found = now;
    EXPECT_EQ(cache.stats()["withdrawn"], 0) << warnings();
  }
  EXPECT_GE(found, 16u);
  EXPECT_FALSE(fs::exists(data_file(1))) << "the dead writer's part is continued";
}

constexpr uint64_t kRecords = 400;

TEST_F(SharedCacheChild, DISABLED_WritesAndReads) {
  Alone cache(folder_);
  for (uint64_t i = 0; i < kRecords; ++i) {
    const uint64_t record = (i * 7 + static_cast<uint64_t>(number_) * 131) % kRecords;
    if (!cache.gives(record)) cache.keep(record);
    ASSERT_TRUE(cache.gives(record));
  }
}

TEST_F(SharedCacheTest, ProcessesWriteAndReadAtTheSameTime) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank)
    children.push_back(start_child("WritesAndReads", folder(), rank));
  for (const pid_t child : children) EXPECT_EQ(end_of(child), 0);
  Alone cache(folder());
  for (uint64_t record = 0; record < kRecords; ++record) EXPECT_TRUE(cache.gives(record));
  EXPECT_EQ(cache.stats()["samples"], kRecords);
}

TEST_F(SharedCacheTest, CountsPartsBehindOneThatIsBeingMade) {
  constexpr int64_t kBytes = 5000;
  Alone first(folder(), kBytes);
  first.keep(0);
  std::string holder;
  const auto lock = platform::FileLock::take(folder() + "/part-1.lock", holder);
  ASSERT_TRUE(lock);
  Alone second(folder(), kBytes);
  for (uint64_t record = 1; record < 20; ++record) second.keep(record);
  ASSERT_TRUE(fs::exists(data_file(2)));
  for (uint64_t record = 20; record < 40; ++record) first.keep(record);
  EXPECT_LE(fs::file_size(data_file(0)) + fs::file_size(data_file(2)), kBytes + 2 * 64u);
  EXPECT_EQ(first.stats()["kept"], 1);
}

TEST_F(SharedCacheTest, AFileThatShrinksWhileItIsUsedIsAnError) {
  Alone cache(folder()), other(folder());
  for (uint64_t record = 0; record < 9; ++record) cache.keep(record);
  ASSERT_TRUE(other.cache().has(8, 0));
  fs::resize_file(data_file(), fs::file_size(data_file()) / 2);
  Item item;
  item.record = 8;
  const std::string error = error_text([&] { other.cache().recall(item); });
  EXPECT_HAS(error, "was damaged while it was used");
  EXPECT_HAS(error, data_file());
  EXPECT_FALSE(other.gives(8)) << "it must be made again";
  other.keep(8);
  EXPECT_TRUE(other.gives(8));
  EXPECT_TRUE(Alone(folder()).gives(8));
  EXPECT_TRUE(other.gives(0));
}

TEST_F(SharedCacheChild, DISABLED_FillsTheDisk) {
  std::string told;
  set_log_hook([&](LogLevel level, const char* line) {
    if (level == LogLevel::warning) told += line;
  });
  Alone cache(folder_);
  for (uint64_t record = 0; record < 5; ++record) cache.keep(record);
  const rlimit little{4000, RLIM_INFINITY}, any{RLIM_INFINITY, RLIM_INFINITY};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  for (uint64_t record = 5; record < 30; ++record) cache.keep(record);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &any), 0);  // since the output may go to a file
  set_log_hook(nullptr);
  EXPECT_HAS(told, "takes no further samples of this process: cannot enlarge");
  EXPECT_EQ(told.find("takes no"), told.rfind("takes no"));
  EXPECT_TRUE(cache.gives(4));
  EXPECT_FALSE(cache.gives(20));
}

TEST_F(SharedCacheTest, AFullDiskIsToldAndTheRestGoesOn) {
  EXPECT_EQ(end_of(start_child("FillsTheDisk", folder(), 0)), 0);
  Alone next(folder());
  EXPECT_TRUE(next.gives(4));
  next.keep(20);
  EXPECT_TRUE(next.gives(20)) << "there is room again";
}

TEST_F(SharedCacheTest, AFolderThatCannotBeWrittenIsReadFrom) {
  Alone(folder()).keep(1);
  for (const char* lock : {"/part-0.lock", "/part-1.lock"})  // stands for a read-only folder,
    fs::create_directory(folder() + lock);                   // in which root could write
  Alone cache(folder());
  cache.keep(2);
  EXPECT_TRUE(cache.gives(1));
  EXPECT_FALSE(cache.gives(2));
  EXPECT_HAS(warnings(), "takes no further samples of this process: cannot");
  put(dir_.path("file"), "x");
  EXPECT_HAS(error_text([&] { Alone(dir_.path("file")); }), "the shared cache's folder");
}

// As with a part of another user, whose files this process may not write.
TEST_F(SharedCacheTest, APartThatCannotBeOpenedLeavesTheNextOne) {
  Alone(folder()).keep(1);
  fs::create_directory(folder() + "/part-0.lock");
  Alone cache(folder());
  cache.keep(2);
  EXPECT_TRUE(cache.gives(1));
  EXPECT_TRUE(cache.gives(2));
  EXPECT_EQ(warnings(), "");
  EXPECT_TRUE(Alone(folder()).gives(2));
}

TEST_F(SharedCacheTest, OtherProgramsFilesAreNotTaken) {
  Alone(folder()).keep(1);
  put(data_file(), std::string(100, 'x'));
  Alone cache(folder());
  EXPECT_FALSE(cache.gives(1));
  cache.keep(1);
  EXPECT_TRUE(cache.gives(1));
  EXPECT_HAS(warnings(), "part-0.data' is not a part of a shared cache, or is damaged");
  EXPECT_EQ(get(data_file()), std::string(100, 'x'));
  EXPECT_TRUE(fs::exists(data_file(1)));
}

}  // namespace
}  // namespace etr::test
