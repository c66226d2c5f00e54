#include <gtest/gtest.h>

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
