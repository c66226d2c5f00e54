#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "checkpoint/safetensors.h"
#include "checkpoint/store.h"
#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "support/data.h"

namespace etr::test {
namespace {

namespace fs = std::filesystem;

TEST(Safetensors, RoundTrip) {
  Tensor a(DType::f32, {2, 3}), b(DType::i32, {}), c(DType::u8, {0, 4});
  for (size_t i = 0; i < 6; ++i) a.mutable_view<float>()[i] = static_cast<float>(i) / 3;
  b.mutable_view<int32_t>()[0] = -7;
  const auto bytes = checkpoint::write_safetensors({{"layer.weight", a}, {"b", b}, {"c", c}});
  const auto back = checkpoint::read_safetensors(bytes, "test");
  ASSERT_EQ(back.size(), 3u);
  EXPECT_EQ(back.at("layer.weight").shape(), (Shape{2, 3}));
  EXPECT_EQ(std::memcmp(back.at("layer.weight").data(), a.data(), 24), 0);
  EXPECT_EQ(back.at("b").view<int32_t>()[0], -7);
  EXPECT_EQ(back.at("c").shape(), (Shape{0, 4}));
}

// Written by hand after the format's description, so that writer and reader cannot err alike.
TEST(Safetensors, ReadsTheFormat) {
  const std::string header =
      R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"by":"hand"}})";
  std::vector<std::byte> bytes(8 + header.size() + 8);
  const uint64_t length = header.size();
  const float values[] = {1.5f, -2};
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  std::memcpy(bytes.data() + 8 + header.size(), values, 8);
  const auto tensors = checkpoint::read_safetensors(bytes, "test");
  EXPECT_EQ(tensors.at("x").view<float>()[1], -2);
  for (const size_t cut : {size_t{3}, size_t{20}, bytes.size() - 1})
    EXPECT_THROW(checkpoint::read_safetensors(std::span(bytes).first(cut), "test"), Error) << cut;
}

checkpoint::Files files_with(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {{"a.bin", {bytes.begin(), bytes.end()}}};
}

std::string text_of(const checkpoint::Loaded& loaded) {
  const auto& bytes = loaded.files.at("a.bin");
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

using Names = std::vector<std::string>;

Names names_in(const fs::path& directory) {
  Names out;
  for (const auto& entry : fs::directory_iterator(directory))
    out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

TEST(Store, KeepsTwoGenerationsAndLoadsTheNewest) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c"));
  EXPECT_FALSE(store.load_latest().has_value());
  for (const uint64_t step : {5u, 10u, 100u})
    store.save(step, files_with("step " + std::to_string(step)));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path("c")), {}), 2);
  EXPECT_EQ(text_of(*store.load_latest()), "step 100");
  EXPECT_EQ(store.load_latest()->step, 100u);
}

// A new run in an old run's folder: what is newest was written last, whatever its step.
TEST(Store, GenerationsAreOrderedByWhenTheyWereWritten) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c"));
  for (const uint64_t step : {600u, 700u}) store.save(step, files_with("old"));
  EXPECT_EQ(text_of(*store.load_latest()), "old");
  EXPECT_TRUE(fs::exists(store.save(5, files_with("new 5"))));
  EXPECT_EQ(text_of(*store.load_latest()), "new 5");
  EXPECT_TRUE(fs::exists(store.save(10, files_with("new 10"))));
  EXPECT_EQ(store.load_latest()->step, 10u);
  EXPECT_EQ(names_in(dir.path("c")), (Names{"step-000000000005", "step-000000000010"}));
  // Times are not asked: a copy of the folder may have any.
  fs::last_write_time(dir.path("c/step-000000000005/manifest.json"),
                      fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(store.load_latest()->step, 10u);
}

TEST(Store, TheSameStepSavedAgainIsAnotherGeneration) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c"));
  for (const char* text : {"first", "second", "third"}) store.save(7, files_with(text));
  EXPECT_EQ(text_of(*store.load_latest()), "third");
  EXPECT_EQ(names_in(dir.path("c")), (Names{"step-000000000007-2", "step-000000000007-3"}));
  store.save(7, files_with("fourth"));
  EXPECT_EQ(text_of(*store.load_latest()), "fourth");
  EXPECT_EQ(names_in(dir.path("c")), (Names{"step-000000000007", "step-000000000007-3"}));
}

// Manifests of earlier versions have no generation.
TEST(Store, LoadsCheckpointsOfEarlierVersions) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c"));
  for (const uint64_t step : {1u, 2u}) {
    const std::string path =
        store.save(step, files_with(step == 1 ? "one" : "two")) + "/manifest.json";
    Json manifest = Json::parse(std::ifstream(path));
    manifest.erase("generation");
    std::ofstream(path) << manifest.dump();
  }
  EXPECT_EQ(text_of(*store.load_latest()), "two");
  store.save(1, files_with("of now"));
  EXPECT_EQ(text_of(*store.load_latest()), "of now");
  EXPECT_EQ(names_in(dir.path("c")), (Names{"step-000000000001-2", "step-000000000002"}));
}

// What is no whole checkpoint takes no place, hides none, and stays where it is.
class Strange : public ::testing::TestWithParam<const char*> {};

TEST_P(Strange, FoldersCountForNothing) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c"));
  const fs::path stray = dir.path("c/step-999999999999");
  const std::string manifest = GetParam();
  fs::create_directories(stray);
  std::ofstream(stray / "a.bin") << "a";
  std::ofstream(stray / "notes.txt") << "mine";
  if (manifest != "none") std::ofstream(stray / "manifest.json") << manifest;
  EXPECT_FALSE(store.newest_step().has_value());
  EXPECT_THROW(store.load_latest(), Error) << "it says what is wrong, and does not begin anew";
  for (const uint64_t step : {1u, 2u, 3u}) store.save(step, files_with(std::to_string(step)));
  EXPECT_EQ(text_of(*store.load_latest()), "3");
  EXPECT_EQ(store.newest_step(), 3u);
  EXPECT_EQ(names_in(dir.path("c")),
            (Names{"step-000000000002", "step-000000000003", "step-999999999999"}));
  store.clear();
  EXPECT_TRUE(fs::exists(stray / "notes.txt"));
  EXPECT_EQ(names_in(dir.path("c")), Names{"step-999999999999"});
}

INSTANTIATE_TEST_SUITE_P(
    Folders, Strange,
    ::testing::Values(
        "none", "", "{", "[]", "3", R"({"step": 9})", R"({"step": 9, "files": {}})",
        R"({"step": -1, "generation": 9, "files": {"a.bin": {"bytes": 1, "crc32c": 0}}})",
        R"({"step": 9, "generation": 1.5, "files": {"a.bin": {"bytes": 1, "crc32c": 0}}})",
        R"({"step": 9, "generation": 18446744073709551615, "files": {"a.bin": {"bytes": 1, "crc32c": 0}}})",
        R"({"step": 9, "generation": 99, "files": {"../c": {"bytes": 1, "crc32c": 0}}})",
        R"({"step": 9, "generation": 99, "files": {"..": {"bytes": 1, "crc32c": 0}}})",
        R"({"step": 9, "generation": 99, "files": {"a.bin": {"bytes": "1", "crc32c": 0}}})",
        R"({"step": 9, "generation": 99, "files": [1]})"));

TEST(Store, AShorterFileIsNoCheckpointEither) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c"));
  store.save(1, files_with("good"));
  const std::string cut = store.save(2, files_with("whole"));
  fs::resize_file(cut + "/a.bin", 2);
  EXPECT_EQ(store.newest_step(), 1u);
  store.save(3, files_with("newest"));
  EXPECT_EQ(names_in(dir.path("c")),
            (Names{"step-000000000001", "step-000000000002", "step-000000000003"}));
  EXPECT_EQ(text_of(*store.load_latest()), "newest");
}

TEST(Store, ClearingLeavesWhatOthersPutThere) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c"));
  const std::string first = store.save(1, files_with("1"));
  store.save(2, files_with("2"));
  fs::create_directories(dir.path("c/step-000000000003.tmp"));
  std::ofstream(first + "/notes.txt") << "mine";
  std::ofstream(dir.path("c/best.txt")) << "mine";
  fs::create_directories(dir.path("c/step-by-step"));
  store.clear();
  EXPECT_EQ(names_in(dir.path("c")), (Names{"best.txt", "step-000000000001", "step-by-step"}));
  EXPECT_EQ(names_in(first), Names{"notes.txt"});
}

TEST(Store, PassesOverADamagedCheckpoint) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c"));
  store.save(1, files_with("old"));
  const std::string newest = store.save(2, files_with("new"));
  std::ofstream(newest + "/a.bin", std::ios::binary) << "nxw";
  EXPECT_EQ(text_of(*store.load_latest()), "old");
  fs::remove(dir.path("c") + "/step-000000000001/manifest.json");
  try {
    store.load_latest();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::corrupt_data);
    EXPECT_NE(std::string(error.what()).find("a.bin' does not match its checksum"),
              std::string::npos);
  }
}

TEST(Store, AnInterruptedWriteLeavesTheOldOne) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c"));
  store.save(1, files_with("old"));
  fs::create_directories(dir.path("c") + "/step-000000000002.tmp");
  std::ofstream(dir.path("c") + "/step-000000000002.tmp/a.bin") << "half";
  EXPECT_EQ(text_of(*store.load_latest()), "old");
  store.save(2, files_with("whole"));  // the rest of the interrupted write is no obstacle
  EXPECT_EQ(text_of(*store.load_latest()), "whole");
}

}  // namespace
}  // namespace etr::test
