// What the image stages compute.
#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "codec/image_codec.h"
#include "core/error.h"
#include "core/rng.h"
#include "sources/pack.h"
#include "support/data.h"
#include "support/images.h"

namespace etr::test {
namespace {

using pipeline::Item;
using pipeline::Pipeline;

// Runs one stage on one decoded image and returns the result.
class OneStage {
 public:
  explicit OneStage(int size = 8) : pattern_(make_shards(dir_, 1, 64, size, 10, ".tar")) {}

  std::vector<Tensor> images(const std::string& stages, int seed = 1) {
    Pipeline p({{"seed", seed},
                {"epochs", 1},
                {"stages",
                 parse_json(R"([{"stage": "webdataset", "pattern": ")" + pattern_ +
                                R"("}, {"stage": "label", "field": "txt"}, {"stage": "decode"})" +
                                stages + "]",
                            "test")}});
    std::vector<Tensor> out;
    Item item;
    while (p.next(item) == Pipeline::Next::item)
      out.push_back(pipeline::require_field(item, "image"));
    return out;
  }

 private:
  TempDir dir_;
  std::string pattern_;
};

TEST(Flip, MirrorsAboutTheRightShare) {
  OneStage data;
  const auto before = data.images(""), after = data.images(R"(, {"stage": "flip"})");
  int flipped = 0;
  for (size_t n = 0; n < before.size(); ++n) {
    const auto a = before[n].view<uint8_t>(), b = after[n].view<uint8_t>();
    bool same = true, mirrored = true;
    for (size_t y = 0; y < 8; ++y)
      for (size_t x = 0; x < 8; ++x)
        for (size_t c = 0; c < 3; ++c) {
          same &= b[(y * 8 + x) * 3 + c] == a[(y * 8 + x) * 3 + c];
          mirrored &= b[(y * 8 + x) * 3 + c] == a[(y * 8 + 7 - x) * 3 + c];
        }
    ASSERT_TRUE(same || mirrored);
    flipped += mirrored;
  }
  EXPECT_NEAR(flipped, 32, 16);
}

TEST(RandomCrop, IsAWindowOfThePaddedImage) {
  OneStage data;
  const auto before = data.images(""),
             after = data.images(R"(, {"stage": "random_crop", "pad": 3, "height": 6})");
  std::set<std::pair<int, int>> offsets;
  for (size_t n = 0; n < before.size(); ++n) {
    ASSERT_EQ(after[n].shape(), (Shape{6, 8, 3}));
    int matches = 0;
    for (int y0 = -3; y0 <= 5; ++y0)
      for (int x0 = -3; x0 <= 3; ++x0) {
        bool match = true;
        for (int i = 0; match && i < 6 * 8 * 3; ++i) {
          const int y = i / 24 + y0, x = i / 3 % 8 + x0, c = i % 3;
          const bool inside = y >= 0 && y < 8 && x >= 0 && x < 8;
          const uint8_t expected =
              inside ? before[n].view<uint8_t>()[static_cast<size_t>((y * 8 + x) * 3 + c)] : 0;
          match = after[n].view<uint8_t>()[static_cast<size_t>(i)] == expected;
        }
        if (match) offsets.insert({y0, x0}), ++matches;
      }
    EXPECT_EQ(matches, 1);
  }
  EXPECT_GT(offsets.size(), 25u) << "of 63 places";
}

TEST(Normalize, FormulaPerChannelAndWholeBatch) {
  OneStage data(5);
  const auto before = data.images("");
  const std::string normalize =
      R"(, {"stage": "normalize", "mean": [0.1, 0.5, 0.9], "std": [0.5, 1, 2]})";
  const auto after = data.images(normalize);
  const auto batched = data.images(R"(, {"stage": "batch", "size": 64})" + normalize);
  const double mean[] = {0.1, 0.5, 0.9}, deviation[] = {0.5, 1, 2};
  for (size_t n = 0; n < before.size(); ++n)
    for (size_t i = 0; i < 75; ++i) {
      const double expected =
          (before[n].view<uint8_t>()[i] / 255.0 - mean[i % 3]) / deviation[i % 3];
      ASSERT_NEAR(after[n].view<float>()[i], expected, 1e-5);
      ASSERT_EQ(batched[0].view<float>()[n * 75 + i], after[n].view<float>()[i]);
    }
}

TEST(Normalize, DeferredLeavesBytesAndSaysWhatToDo) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 8, 5);
  const std::string begin = R"({"stages": [{"stage": "webdataset", "pattern": ")" + pattern +
                            R"("}, {"stage": "decode"}, )";
  const std::string normalize =
      R"({"stage": "normalize", "mean": [0.1, 0.5, 0.9], "std": [0.5, 1, 2])";
  const auto first = [&](const std::string& stages) {
    pipeline::Pipeline p(parse_json(begin + stages + "]}", "test"));
    pipeline::Item item;
    p.next(item);
    return item;
  };
  const pipeline::Item now = first(R"({"stage": "batch", "size": 8}, )" + normalize + "}"),
                       later = first(R"({"stage": "batch", "size": 8}, )" + normalize +
                                     R"(, "deferred": true})");
  ASSERT_EQ(later.find("image")->dtype(), DType::u8);
  const auto bytes = later.find("image")->view<uint8_t>();
  const auto scale = later.find("image_scale")->view<float>(),
             shift = later.find("image_shift")->view<float>();
  ASSERT_EQ(scale.size(), 3u);
  for (size_t i = 0; i < bytes.size(); ++i)
    ASSERT_EQ(static_cast<float>(bytes[i]) * scale[i % 3] + shift[i % 3],
              now.find("image")->view<float>()[i]);
  EXPECT_THROW(first(normalize + R"(, "deferred": true})"), Error) << "in front of batch";
}

TEST(BrightnessContrast, StaysCloseAndVaries) {
  OneStage data;
  const auto before = data.images(""),
             same = data.images(
                 R"(, {"stage": "brightness_contrast", "brightness": 0, "contrast": 0})");
  const auto after =
      data.images(R"(, {"stage": "brightness_contrast", "brightness": 0.1, "contrast": 0})");
  std::set<int> shifts;
  for (size_t n = 0; n < before.size(); ++n) {
    EXPECT_EQ(std::memcmp(before[n].data(), same[n].data(), 192), 0);
    for (size_t i = 0; i < 192; ++i) {
      const int a = before[n].view<uint8_t>()[i], b = after[n].view<uint8_t>()[i];
      ASSERT_LE(std::abs(a - b), 26);
      if (a > 60 && a < 190) shifts.insert(b - a);
    }
  }
  EXPECT_GT(shifts.size(), 15u);
}

TEST(Label, OneHot) {
  TempDir dir;
  Pipeline p({{"epochs", 1},
              {"stages",
               {{{"stage", "webdataset"}, {"pattern", make_shards(dir, 1, 12)}},
                {{"stage", "label"}, {"classes", 10}, {"one_hot", true}}}}});
  Item item;
  for (int n = 0; p.next(item) == Pipeline::Next::item; ++n) {
    const Tensor& label = pipeline::require_field(item, "label");
    ASSERT_EQ(label.shape(), Shape{10});
    for (int c = 0; c < 10; ++c)
      EXPECT_EQ(label.view<float>()[static_cast<size_t>(c)], c == n % 10 ? 1 : 0);
  }
}

Options packing(const Json& options) { return {sources::pack_schema(), "pack", options}; }

TEST(PackAndFolder, GiveTheSameSamples) {
  TempDir dir;
  for (int i = 0; i < 50; ++i) {
    const std::string folder = dir.path("images/class-" + std::to_string(i % 5));
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/" + std::to_string(i) + ".png", std::ios::binary)
        << make_png(6, 6, 1, i);
  }
  const sources::PackResult packed = sources::pack_folder(dir.path("images"), dir.path("out"),
                                                          packing({{"per_shard", 20}}), nullptr);
  EXPECT_EQ(packed.samples, 50);
  EXPECT_EQ(packed.shards.size(), 3u);
  EXPECT_EQ(packed.classes.front(), "class-0");
  const auto contents = [](const Json& source) {
    Pipeline p({{"epochs", 1}, {"stages", {source, {{"stage", "label"}}, {{"stage", "decode"}}}}});
    std::multiset<std::pair<int, std::string>> out;
    Item item;
    while (p.next(item) == Pipeline::Next::item) {
      const auto image = pipeline::require_field(item, "image").view<char>();
      out.emplace(pipeline::require_field(item, "label").view<int32_t>()[0],
                  std::string(image.begin(), image.end()));
    }
    return out;
  };
  const auto from_folder = contents({{"stage", "folder"}, {"root", dir.path("images")}});
  const auto from_shards =
      contents({{"stage", "webdataset"}, {"pattern", dir.path("out-*.tar.zst")}});
  EXPECT_EQ(from_folder.size(), 50u);
  EXPECT_EQ(from_folder, from_shards);
  sources::pack_folder(dir.path("images"), dir.path("out"),
                       packing({{"per_shard", 20}, {"format", "fast"}}), nullptr);
  EXPECT_EQ(from_folder, contents({{"stage", "fast_shard"}, {"pattern", dir.path("out-*.ets")}}));
}

TEST(Decode, LeavesWhatTheNextStageShrinksToItsDecoder) {
  TempDir dir;
  std::filesystem::create_directories(dir.path("a/b"));
  std::vector<uint8_t> waves;
  for (int i = 0; i < 96 * 160; ++i)
    waves.push_back(
        static_cast<uint8_t>(128 + 60 * std::sin(i % 160 * 0.5) + 60 * std::cos(i / 160 * 0.3)));
  JpegKind gray;
  gray.channels = 1;
  std::ofstream(dir.path("a/b/x.jpg"), std::ios::binary) << write_jpeg(gray, 160, 96, waves);
  const auto image = [&](const std::string& decode, const std::string& next) {
    pipeline::Pipeline p(parse_json(R"({"stages": [{"stage": "folder", "root": ")" + dir.path("a") +
                                        R"("}, {"stage": "decode")" + decode + "}" + next + "]}",
                                    "test"));
    pipeline::Item item;
    p.next(item);
    return *item.find("image");
  };
  const std::string small = R"(, {"stage": "resize", "height": 12, "width": 12})";
  EXPECT_TRUE(same(image("", small), image(R"(, "min_side": 24)", small)));
  const Tensor shrunk = image("", small), full = image(R"(, "min_side": 0)", small);
  EXPECT_FALSE(same(shrunk, full));
  for (size_t i = 0; i < full.size_bytes(); ++i)
    EXPECT_NEAR(shrunk.view<uint8_t>()[i], full.view<uint8_t>()[i], 8);
  // Nothing to gain, or nobody who shrinks: in full.
  for (const char* next : {"", R"(, {"stage": "flip"}, {"stage": "resize", "height": 12})",
                           R"(, {"stage": "resize", "shorter_side": 50})",
                           R"(, {"stage": "random_resized_crop", "height": 12, "width": 12})"})
    EXPECT_TRUE(same(image("", next), image(R"(, "min_side": 0)", next))) << next;
  const std::string crop =
      R"(, {"stage": "random_resized_crop", "height": 6, "width": 6, "area_min": 0.5})";
  EXPECT_TRUE(same(image("", crop), image(R"(, "min_side": 24)", crop)));
}

}  // namespace
}  // namespace etr::test
