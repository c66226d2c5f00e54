#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <thread>

#include "checkpoint/safetensors.h"
#include "checkpoint/store.h"
#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/platform_lock.h"
#include "support/data.h"
#include "support/deep_json.h"

namespace etr::test {
namespace {

namespace fs = std::filesystem;

TEST(Safetensors, RoundTrip) {
  Tensor a(DType::f32, {2, 3}), b(DType::i32, {}), c(DType::u8, {0, 4}), d(DType::u8, {1});
  for (size_t i = 0; i < 6; ++i) a.mutable_view<float>()[i] = static_cast<float>(i) / 3;
  b.mutable_view<int32_t>()[0] = -7;
  d.mutable_view<uint8_t>()[0] = 200;
  const auto bytes =
      checkpoint::write_safetensors({{"layer.weight", a}, {"b", b}, {"c", c}, {"d", d}});
  const auto back = checkpoint::read_safetensors(bytes, "test");
  ASSERT_EQ(back.size(), 4u);
  EXPECT_EQ(back.at("d").view<uint8_t>()[0], 200);
  EXPECT_EQ(back.at("layer.weight").shape(), (Shape{2, 3}));
  EXPECT_EQ(std::memcmp(back.at("layer.weight").data(), a.data(), 24), 0);
  EXPECT_EQ(back.at("b").view<int32_t>()[0], -7);
  EXPECT_EQ(back.at("b").dtype(), DType::i32);
  EXPECT_EQ(back.at("c").dtype(), DType::u8);
  EXPECT_EQ(back.at("c").shape(), (Shape{0, 4}));
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u) << "the data are aligned";
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

std::vector<std::byte> file_of(const std::string& header, size_t data_bytes,
                               std::optional<uint64_t> length = {}) {
  std::vector<std::byte> bytes(8 + header.size() + data_bytes, std::byte{1});
  const uint64_t written = length.value_or(header.size());
  std::memcpy(bytes.data(), &written, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

std::string error_of(const std::vector<std::byte>& file) {
  try {
    checkpoint::read_safetensors(file, "'w.safetensors'");
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == Code::corrupt_data || error.code() == Code::unsupported);
    return error.what();
  }
  return "";
}

std::string row(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

struct BadFile {
  std::string row;    // of the tensor 'a', whose data is 8 bytes
  std::string error;  // a part of it
};

// The header's first tensor; the error names it. The reference implementation refuses all of these,
// too.
TEST(Safetensors, RefusesWhatDoesNotFit) {
  const std::string f32 = R"("F32")", big = "4611686018427387904";  // 2^62
  const BadFile cases[] = {
      {row(R"("F64")", "[4611686018427387905]", "[0,8]"), "more than 64 bits"},
      {row(R"("F64")", "[" + big + "]", "[0,0]"), "more than 64 bits"},
      {row(R"("F16")", "[1152921504606846976,8]", "[0,0]"), "more than 64 bits"},
      {row(R"("BF16")", "[" + big + ",2]", "[0,0]"), "more than 64 bits"},
      {row(R"("U8")", "[" + big + ",4]", "[0,0]"), "more than 64 bits"},
      {row(R"("U8")", "[" + big + "," + big + ",0]", "[0,0]"), "more than 64 bits"},
      {row(f32, "[9223372036854775807,0]", "[0,0]"), "more than 64 bits"},
      {row(R"("U8")", "[18446744073709551615]", "[0,8]"), "whole numbers"},
      {row(R"("U8")", "[18446744073709551616]", "[0,8]"), "whole numbers"},
      {row(R"("U8")", "[" + big + "]", "[0,8]"), "lies in bytes 0 to 8, but U8"},
      {row(f32, "[2.0]", "[0,8]"), "has the shape [2.0]"},
      {row(f32, "[-2]", "[0,8]"), "has the shape [-2]"},
      {row(f32, "[2,\"1\"]", "[0,8]"), "has the shape"},
      {row(f32, "2", "[0,8]"), "'shape' must be a list, not 2"},
      {row(f32, "[1,1,1,1,1,1,1,1,2]", "[0,8]"), "has 9 axes"},
      {row(R"("U8")", "[4294967297,4294967297]", "[0,8]"), "more than 64 bits"},
      {row(f32, "[2]", "[0]"), "data_offsets [0]"},
      {row(f32, "[2]", "8"), "data_offsets 8"},
      {row(f32, "[2]", "[0,8.0]"), "data_offsets [0,8.0]"},
      {row(f32, "[2]", "[0,8,8]"), "data_offsets"},
      {row(f32, "[2]", "[0.0,8]"), "data_offsets"},
      {row(f32, "[2]", "[-8,0]"), "data_offsets"},
      {row(f32, "[2]", "[8,0]"), "lies in bytes 8 to 0"},
      {row(R"("U8")", "[4611686018427387902,4]", "[8,0]"), "lies in bytes 8 to 0"},
      {row(f32, "[2]", "[0,18446744073709551615]"), "lies in bytes"},
      {row(f32, "[2]", "[18446744073709551608,18446744073709551615]"), "lies in bytes"},
      {row(f32, "[3]", "[0,12]"), "the file is cut off"},
      {row(f32, "[1]", "[0,4]"), "the data has 8 bytes, but the last tensor 'a' ends at byte 4"},
      {row(f32, "[1]", "[4,8]"),
       "begins at byte 4 of the data, but the data begins at byte 0; the gap"},
      {row("7", "[2]", "[0,8]"), "must be a string, not 7"},
      {row(R"(["F32"])", "[2]", "[0,8]"), "'dtype' must be a string"},
      {row(R"("BOOL")", "[8]", "[0,8]"), "has element type BOOL"},
      {row("\"" + std::string(41, 't') + "\"", "[8]", "[0,8]"),
       "type " + std::string(40, 't') + ";"},
      {row(f32, "\"" + std::string(78, 's') + "\"", "[0,8]"),
       "not \"" + std::string(78, 's') + "\""},
      {row(f32, "\"" + std::string(79, 's') + "\"", "[0,8]"),
       "not \"" + std::string(79, 's') + "..."},
      {"[]", "must be an object"},
      {R"({"shape":[2],"data_offsets":[0,8]})", "has no 'dtype'"},
      {R"({"dtype":"F32","data_offsets":[0,8]})", "has no 'shape'"},
      {R"({"dtype":"F32","shape":[2]})", "has no 'data_offsets'"},
      {R"({"dtype":"F32","dtype":"U8","shape":[8],"data_offsets":[0,8]})", "duplicate key 'dtype'"},
  };
  for (const BadFile& bad : cases) {
    const std::string error = error_of(file_of("{\"a\":" + bad.row + "}", 8));
    EXPECT_NE(error.find(bad.error), std::string::npos) << bad.row << ": " << error;
    EXPECT_NE(error.find("'w.safetensors'"), std::string::npos) << error;
    const bool named = error.find("tensor 'a'") != std::string::npos;
    EXPECT_TRUE(named || bad.error == "duplicate key 'dtype'") << error;
  }
}

template <typename T>
std::string error_of_value(const char* type, T value) {
  std::vector<std::byte> file =
      file_of("{\"a\":" + row(std::string("\"") + type + "\"", "[1]", "[0,8]") + "}", 8);
  std::memcpy(file.data() + file.size() - sizeof value, &value, sizeof value);
  return error_of(file);
}

TEST(Safetensors, RefusesNumbersThatDoNotFitByTheTensorsName) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double fits : {0.0, 3.4e38, -3.4e38, 1e-320, kInfinity, -kInfinity})
    EXPECT_EQ(error_of_value("F64", fits), "") << fits;
  EXPECT_EQ(error_of_value("F64", std::nan("")), "");
  for (const double beyond : {3.5e38, -1e39, 1.7e308})
    for (const char* part : {"tensor 'a' (F64) holds", "which F32 cannot hold"})
      EXPECT_NE(error_of_value("F64", beyond).find(part), std::string::npos);
  for (const int64_t fits : {int64_t{INT32_MIN}, int64_t{INT32_MAX}, int64_t{0}})
    EXPECT_EQ(error_of_value("I64", fits), "") << fits;
  for (const int64_t beyond : {int64_t{INT32_MIN} - 1, int64_t{INT32_MAX} + 1, INT64_MIN})
    for (const char* part : {"tensor 'a' (I64) holds", "which I32 cannot hold"})
      EXPECT_NE(error_of_value("I64", beyond).find(part), std::string::npos);
}

// Each value, not only the first.
TEST(Safetensors, WiderNumbersBecomeNarrower) {
  const auto read = [](const char* type, const void* values, size_t bytes) {
    std::vector<std::byte> file = file_of(
        "{\"a\":" + row(std::string("\"") + type + "\"", "[3]", cat("[0,", bytes, "]")) + "}",
        bytes);
    std::memcpy(file.data() + file.size() - bytes, values, bytes);
    return checkpoint::read_safetensors(file, "test").at("a");
  };
  const double doubles[] = {1.5, -2, 0.25};
  const int64_t wholes[] = {7, -8, 1'000'000};
  const uint16_t halves[] = {0x3E00, 0xC000, 0x3400}, brains[] = {0x3FC0, 0xC000, 0x3E80};
  for (const Tensor& got :
       {read("F64", doubles, 24), read("F16", halves, 6), read("BF16", brains, 6)}) {
    ASSERT_EQ(got.dtype(), DType::f32);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(got.view<float>()[i], doubles[i]);
  }
  const Tensor got = read("I64", wholes, 24);
  ASSERT_EQ(got.dtype(), DType::i32);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(got.view<int32_t>()[i], wholes[i]);
}

TEST(Safetensors, RefusesOverlapsHolesAndOtherHeaders) {
  const auto with = [](const std::string& a, const std::string& b) {
    return error_of(file_of("{\"a\":" + a + ",\"b\":" + b + "}", 16));
  };
  const std::string f32 = R"("F32")";
  EXPECT_EQ(with(row(f32, "[2]", "[8,16]"), row(f32, "[2]", "[0,8]")), "");
  EXPECT_NE(
      with(row(f32, "[2]", "[0,8]"), row(f32, "[3]", "[4,16]"))
          .find("'b' begins at byte 4 of the data, but tensor 'a' before it ends at byte 8; the "
                "two overlap"),
      std::string::npos);
  EXPECT_NE(with(row(f32, "[2]", "[0,8]"), row(f32, "[2]", "[0,8]")).find("the two overlap"),
            std::string::npos);
  EXPECT_NE(
      with(row(f32, "[2]", "[0,8]"), row(f32, "[1]", "[12,16]"))
          .find("'b' begins at byte 12 of the data, but tensor 'a' before it ends at byte 8; the "
                "gap belongs to no tensor"),
      std::string::npos);
  const std::string good = "\"a\":" + row(f32, "[2]", "[0,8]");
  EXPECT_EQ(error_of(file_of("{" + good + "}  ", 8)), "") << "padded with spaces";
  EXPECT_NE(error_of(file_of("{" + good + "," + good + "}", 8)).find("duplicate key 'a'"),
            std::string::npos);
  EXPECT_NE(error_of(file_of(" {" + good + "}", 8)), "");
  EXPECT_NE(error_of(file_of("[" + good + "]", 8)), "");
  EXPECT_NE(error_of(file_of("{" + good + "} x", 8)), "");
  EXPECT_NE(error_of(file_of("{" + good + ",\"__metadata__\":{\"a\":1}}", 8))
                .find("'__metadata__' must map names to strings"),
            std::string::npos);
  EXPECT_NE(error_of(file_of("{" + good + ",\"__metadata__\":[\"a\"]}", 8))
                .find("'__metadata__' must map names to strings"),
            std::string::npos);
  EXPECT_EQ(error_of(file_of("{}", 0)), "") << "no tensors, and nothing behind the header";
  EXPECT_EQ(error_of(file_of("{\"a\":" + row(f32, "[1,1,1,1,1,1,1,2]", "[0,8]") + "}", 8)), "");
  const std::string nothing = row(R"("U8")", "[1152921504606846975,0]", "[0,0]");
  EXPECT_EQ(error_of(file_of("{\"a\":" + nothing + "}", 0)), "");
  EXPECT_NE(error_of(file_of("{/* a comment */" + good + "}", 8)), "");
  EXPECT_NE(error_of({7, std::byte{1}}).find("too short for a safetensors file"),
            std::string::npos);
  EXPECT_NE(error_of(file_of("{}", 0, 100'000'001)).find("a safetensors header of 100000001 bytes"),
            std::string::npos);
  const std::string header = "{" + good + "}";
  for (const size_t beyond : {1, 8, 16})
    EXPECT_NE(error_of(file_of(header, 0, header.size() + beyond)).find("header is cut off"),
              std::string::npos)
        << beyond;
  for (const uint64_t length : {uint64_t{100'000'001}, ~uint64_t{0}, uint64_t{1} << 63})
    EXPECT_NE(error_of(file_of("{" + good + "}", 8, length)), "") << length;
}

// In each place of a header that JSON can nest in.
TEST(Safetensors, HeadersHaveALimitOnDepth) {
  for (const std::string& deep : deep_documents(100'000))
    for (const std::string& header :
         {deep, "{\"a\":" + deep + "}", "{\"a\":" + row(deep, "[2]", "[0,8]") + "}",
          "{\"a\":" + row(R"("F32")", deep, "[0,8]") + "}",
          "{\"a\":" + row(R"("F32")", "[2]", deep) + "}", "{\"__metadata__\":" + deep + "}"})
      EXPECT_NE(error_of(file_of(header, 8)).find("256 levels deep"), std::string::npos);
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
// By a program that looks at a run which goes on, and removes what was found before it is read.
TEST(Store, LoadsTheNewestWhileOthersAreWritten) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c"), 1);
  checkpoint::Files files;
  checkpoint::put_text(files, "state", "{}");
  store.save(1, files);
  std::atomic<bool> is_over{false};
  std::thread run([&] {
    for (uint64_t step = 2; !is_over; ++step) store.save(step, files);
  });
  uint64_t last = 0;
  while (last < 80) {
    std::optional<checkpoint::Loaded> loaded;
    EXPECT_NO_THROW(loaded = store.load_latest());
    EXPECT_TRUE(loaded) << "found none after step " << last;
    if (!loaded) break;
    EXPECT_GE(loaded->step, last);
    last = loaded->step;
  }
  is_over = true;
  run.join();
}

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
        "none", "", "{", "[]", "3", "null", "{\"step\": 9, \"files\": [1]}", R"({"step": 9})",
        R"({"step": 9, "files": {}})",
        R"({"step": -1, "generation": 9, "files": {"a.bin": {"bytes": 1, "crc32c": 0}}})",
        R"({"step": 9, "generation": 1.5, "files": {"a.bin": {"bytes": 1, "crc32c": 0}}})",
        R"({"step": 9, "generation": 18446744073709551615, "files": {"a.bin": {"bytes": 1, "crc32c": 0}}})",
        R"({"step": 9, "generation": 99, "files": {"../c": {"bytes": 1, "crc32c": 0}}})",
        R"({"step": 9, "generation": 99, "files": {"..": {"bytes": 1, "crc32c": 0}}})",
        R"({"step": 9, "generation": 99, "files": {"a.bin": {"bytes": "1", "crc32c": 0}}})",
        R"({"step": 9, "generation": 99, "files": [1]})"));

TEST(Store, AManifestNamesOnlyFilesBesideIt) {
  TempDir dir;
  for (const char* name : {"../c", "..", ".", "a/b", "/a"}) {
    std::ofstream(dir.path("manifest.json"))
        << R"({"step": 9, "files": {")" << name << R"(": {"bytes": 1, "crc32c": 0}}})";
    try {
      checkpoint::load_checkpoint(dir.path());
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(
          std::string(error.what()).find(cat("'", name, "' is not the name of a file beside it")),
          std::string::npos)
          << error.what();
    }
  }
}

// Copies that somebody has put beside them, for instance.
TEST(Store, FoldersOfOtherNamesAreNoCheckpoints) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c"));
  const fs::path saved = store.save(7, files_with("x"));
  fs::rename(saved, dir.path("saved"));
  for (const char* name : {"best-000000000007", "step-", "step--2", "step-7-", "step-7-x",
                           "step-7x2", "step-7-2x", "step-000000000007.old"}) {
    fs::rename(dir.path("saved"), dir.path("c") + "/" + name);
    EXPECT_FALSE(store.newest_step().has_value()) << name;
    fs::rename(dir.path("c") + "/" + name, dir.path("saved"));
  }
  fs::rename(dir.path("saved"), dir.path("c/step-7-2"));
  EXPECT_EQ(store.newest_step(), 7u);
}

TEST(Store, SaysWhatItCannotUseOrClear) {
  TempDir dir;
  const auto error_of = [](const auto& check) -> std::string {
    try {
      check();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::state);
      return error.what();
    }
    return "";
  };
  std::ofstream(dir.path("file")) << "mine";
  const checkpoint::Store file(dir.path("file")), none(dir.path("none")), store(dir.path("c"));
  EXPECT_FALSE(file.newest_step().has_value());
  for (const auto& check :
       {&checkpoint::Store::check_usable, &checkpoint::Store::check_clearable}) {
    const std::string error = error_of([&] { (file.*check)(); });
    EXPECT_NE(error.find("file' is not a folder"), std::string::npos) << error;
    EXPECT_EQ(error_of([&] { (none.*check)(); }), "");
  }
  const std::string saved = store.save(1, files_with("x"));
  EXPECT_EQ(error_of([&] { store.check_clearable(); }), "");
  fs::create_directory_symlink(dir.path("c"), dir.path("link"));
  const checkpoint::Store link(dir.path("link"));
  EXPECT_EQ(error_of([&] { link.check_usable(); }), "");
  EXPECT_NE(error_of([&] { link.check_clearable(); }).find("link' is a symbolic link"),
            std::string::npos);
  fs::create_directory_symlink(saved, dir.path("c/step-000000000002"));
  EXPECT_NE(error_of([&] { store.check_clearable(); }).find("2' is a symbolic link"),
            std::string::npos);
}

TEST(Store, FilesOfACheckpointAreReadAsJson) {
  checkpoint::Files files;
  checkpoint::put_text(files, "a", R"({"b": 3})");
  checkpoint::put_text(files, "c", "{");
  EXPECT_EQ(checkpoint::json_of(files, "a", "here")["b"], 3);
  for (const auto& [name, part] : {std::pair{"d", "here has no file 'd'"}, {"c", "here: 'c'"}})
    try {
      checkpoint::json_of(files, name, "here");
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::corrupt_data);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
}

TEST(Store, SaysWhichFileIsMissingOrShort) {
  TempDir dir;
  const std::string saved = checkpoint::Store(dir.path("c")).save(1, files_with("whole"));
  const auto said = [&]() -> std::string {
    try {
      checkpoint::load_checkpoint(saved);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::corrupt_data);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(said(), "");
  fs::resize_file(saved + "/a.bin", 2);
  EXPECT_EQ(said(), "'" + saved + "/a.bin' has 2 bytes, not 5");
  fs::remove(saved + "/a.bin");
  EXPECT_EQ(said(), "'" + saved + "/a.bin': No such file or directory");
}

TEST(Store, AFileIsNoCheckpoint) {
  TempDir dir;
  fs::create_directories(dir.path("c"));
  std::ofstream(dir.path("c/step-000000000009")) << "mine";
  EXPECT_FALSE(checkpoint::Store(dir.path("c")).load_latest().has_value());
}

// The messages of the log while `act` runs.
template <typename Act>
std::string logged_by(const Act& act) {
  std::string out;
  set_log_hook([&](LogLevel, const char* message) { out += cat(message, "\n"); });
  act();
  set_log_hook(nullptr);
  return out;
}

TEST(Store, ClearingFollowsNoLinksAndRemovesAnEmptyFolder) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c")), other(dir.path("other"));
  const std::string kept = other.save(2, files_with("2"));
  store.save(1, files_with("1"));
  fs::create_directory_symlink(kept, dir.path("c/step-000000000002"));
  EXPECT_EQ(logged_by([&] { store.clear(); }), "");
  EXPECT_FALSE(fs::exists(dir.path("c")));
  EXPECT_EQ(other.newest_step(), 2u);
}

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
  fs::create_directories(dir.path("c/step-3.tmp"));
  std::ofstream(first + "/notes.txt") << "mine";
  std::ofstream(dir.path("c/best.txt")) << "mine";
  fs::create_directories(dir.path("c/step-by-step"));
  fs::create_directories(dir.path("c/notes.tmp"));
  fs::create_directories(dir.path("c/step-000000000004"));
  const std::string logged = logged_by([&] { store.clear(); });
  EXPECT_NE(logged.find("the old checkpoint '" + first + "' cannot be removed: "),
            std::string::npos);
  EXPECT_EQ(logged.find("step-000000000002"), std::string::npos) << logged;
  EXPECT_NE(logged.find("what is no checkpoint stays in '" + dir.path("c") + "': "),
            std::string::npos);
  fs::remove(dir.path("c/step-000000000004"));
  EXPECT_EQ(names_in(dir.path("c")),
            (Names{"best.txt", "notes.tmp", "step-000000000001", "step-by-step"}));
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
  const std::string logged = logged_by([&] { EXPECT_THROW(store.load_latest(), Error); });
  EXPECT_NE(logged.find("checkpoint passed over: "), std::string::npos);
  EXPECT_NE(logged.find("step-000000000001/manifest.json"), std::string::npos) << logged;
  try {
    store.load_latest();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::corrupt_data);
    EXPECT_NE(std::string(error.what()).find("a.bin' does not match its checksum"),
              std::string::npos);
  }
}

TEST(Store, PassesOverADeepManifest) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c"));
  store.save(1, files_with("old"));
  for (const std::string& deep : deep_documents(100'000)) {
    const std::string newest = store.save(2, files_with("new"));
    std::ofstream(newest + "/manifest.json", std::ios::binary) << deep;
    EXPECT_EQ(text_of(*store.load_latest()), "old");
  }
}

TEST(Store, AnInterruptedWriteLeavesTheOldOne) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c"));
  store.save(1, files_with("old"));
  fs::create_directories(dir.path("c") + "/step-000000000002.tmp");
  for (const char* name : {"a.bin", "b.bin"})
    std::ofstream(dir.path("c/step-000000000002.tmp/") + name) << "half";
  EXPECT_EQ(text_of(*store.load_latest()), "old");
  // The rest of the interrupted write is no obstacle, and no part of it.
  EXPECT_EQ(names_in(store.save(2, files_with("whole"))), (Names{"a.bin", "manifest.json"}));
  EXPECT_EQ(text_of(*store.load_latest()), "whole");
}

TEST(Store, TheNextSaveRemovesWhatAnInterruptedRemovalHasLeft) {
  TempDir dir;
  const checkpoint::Store store(dir.path("c"));
  fs::create_directories(dir.path("c/step-000000000300.tmp"));
  std::ofstream(dir.path("c/step-000000000300.tmp/a.bin")) << "old";
  fs::create_directories(dir.path("c/notes.tmp"));
  store.save(400, files_with("new"));
  EXPECT_FALSE(fs::exists(dir.path("c/step-000000000300.tmp")));
  EXPECT_TRUE(fs::exists(dir.path("c/notes.tmp"))) << "not a checkpoint's";
}

TEST(Store, OneSavesAtATime) {
  TempDir dir;
  const checkpoint::Store store(dir.path("run"));
  store.save(1, files_with("x"));
  std::string holder;
  auto lock = platform::FileLock::take(dir.path("run/") + platform::kFolderLock, holder);
  try {
    store.save(2, files_with("x"));
    FAIL() << "two at once";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::state);
    EXPECT_NE(std::string(error.what()).find("a checkpoint into '" + dir.path("run") + "' (this"),
              std::string::npos);
  }
  lock.reset();
  store.save(3, files_with("x"));
  EXPECT_EQ(store.newest_step(), 3u);
}

TEST(Store, AFolderThatCannotBeMadeIsNamed) {
  TempDir dir;
  std::ofstream(dir.path("file")) << "mine";
  const std::string folder = dir.path("file/run");
  try {
    checkpoint::Store(folder).save(1, files_with("x"));
    FAIL() << "saved below a file";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::io);
    EXPECT_NE(std::string(error.what()).find("cannot create '" + folder + "':"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace etr::test
