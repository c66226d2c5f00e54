// The stage `decode` in pipelines, and images of 16 bits after it.
#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <mutex>

#include "core/error.h"
#include "core/log.h"
#include "pipeline/pipeline.h"
#include "sources/pack.h"
#include "support/data.h"
#include "support/images.h"

namespace etr::test {
namespace {

using pipeline::Item;
using pipeline::Pipeline;

// A folder of one class, whose images come in the order of their names.
class Images {
 public:
  Images() { std::filesystem::create_directories(dir_.path("images/a")); }

  void add(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_.path("images/a/" + name), std::ios::binary) << bytes;
  }
  std::string path(const std::string& name) const { return dir_.path(name); }

  // Of these stages after `folder`, each with a comma before it.
  Json spec(const std::string& stages, const std::string& source = "") const {
    const std::string folder =
        R"({"stage": "folder", "root": ")" + path("images") + R"(", "shuffle": false})";
    return {
        {"epochs", 1},
        {"seed", 3},
        {"stages", parse_json("[" + (source.empty() ? folder : source) + stages + "]", "test")}};
  }

  std::vector<Tensor> decoded(const std::string& stages, const std::string& source = "",
                              const char* field = "image") const {
    Pipeline p(spec(stages, source));
    std::vector<Tensor> out;
    Item item;
    while (p.next(item) == Pipeline::Next::item)
      out.push_back(pipeline::require_field(item, field));
    return out;
  }

 private:
  TempDir dir_;
};

constexpr const char* kDecodeStage = R"(, {"stage": "decode"})";
constexpr const char* kAsStored = R"(, {"stage": "decode", "dtype": "as_stored"})";

TEST(Decode, KeepsSixteenBitsWhereItIsTold) {
  Images images;
  images.add("0.png", write_png({16, PNG_COLOR_TYPE_RGB, true}, 20, 30, 1));
  images.add("1.png", write_png({8, PNG_COLOR_TYPE_GRAY}, 20, 30, 1));
  images.add("2.jpg", smooth_jpeg({}, 20, 30));
  const auto kept = images.decoded(kAsStored), scaled = images.decoded(kDecodeStage);
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept[0].dtype(), DType::u16);
  EXPECT_EQ(scaled[0].dtype(), DType::u8);
  for (size_t i = 0; i < 20 * 30 * 3; ++i)
    ASSERT_EQ(scaled[0].view<uint8_t>()[i], std::lround(kept[0].view<uint16_t>()[i] / 257.0));
  for (const size_t i : {1, 2}) EXPECT_TRUE(same(kept[i], scaled[i]));
  const std::string wide = R"(, {"stage": "cast", "to": "u16", "scale": true})";
  EXPECT_EQ(images.decoded(kAsStored + wide)[1].view<uint16_t>()[7],
            257 * scaled[1].view<uint8_t>()[7]);
}

// What the stages make of u16 is what they make of u8, up to rounding.
TEST(SixteenBits, GoThroughTheStagesThatTakeImages) {
  Images images;
  for (int i = 0; i < 8; ++i) {
    JpegKind kind;
    images.add(cat(i, ".jpg"), smooth_jpeg(kind, 24 + i, 20));
  }
  const std::string size = R"(, {"stage": "resize", "height": 20, "width": 24})";
  const std::string wide = R"(, {"stage": "cast", "to": "u16", "scale": true})";
  const std::string batch = R"(, {"stage": "label", "classes": 2, "one_hot": true})"
                            R"(, {"stage": "batch", "size": 8})";
  for (const std::string& stage :
       {std::string(R"(, {"stage": "resize", "height": 9, "width": 40})"),
        std::string(R"(, {"stage": "random_resized_crop", "height": 12, "width": 12})"),
        std::string(R"(, {"stage": "center_crop", "height": 8, "width": 8})"),
        std::string(R"(, {"stage": "random_crop", "pad": 3})"),
        std::string(R"(, {"stage": "pad", "pixels": [2], "fill": 0.5})"),
        std::string(R"(, {"stage": "flip"})"),
        std::string(R"(, {"stage": "flip", "direction": "vertical"})"),
        std::string(R"(, {"stage": "random_affine"})"),
        std::string(R"(, {"stage": "color_jitter"})"), std::string(R"(, {"stage": "grayscale"})"),
        std::string(R"(, {"stage": "gaussian_blur"})"),
        std::string(R"(, {"stage": "random_erasing", "probability": 1, "value": 0.25})"),
        std::string(R"(, {"stage": "random_erasing", "probability": 1, "filling": "noise"})"),
        batch + R"(, {"stage": "mixup"})", batch + R"(, {"stage": "cutmix"})"}) {
    // At the same place in the pipeline, for the same random numbers.
    const auto narrow =
        images.decoded(kDecodeStage + size + R"(, {"stage": "cast", "to": "u8"})" + stage);
    const auto deep = images.decoded(kDecodeStage + size + wide + stage);
    ASSERT_EQ(narrow.size(), deep.size());
    for (size_t n = 0; n < narrow.size(); ++n) {
      ASSERT_EQ(deep[n].dtype(), DType::u16) << stage;
      ASSERT_EQ(deep[n].shape(), narrow[n].shape()) << stage;
      // Two roundings to u8 in the jitter's steps.
      for (size_t i = 0; i < narrow[n].size_bytes(); ++i)
        ASSERT_NEAR(deep[n].view<uint16_t>()[i] / 257.0, narrow[n].view<uint8_t>()[i], 2) << stage;
    }
  }
  // Its steps are cut at 256 levels, which u16 rounds elsewhere.
  for (const Tensor& image : images.decoded(kDecodeStage + size + wide +
                                            R"(, {"stage": "rand_augment", "num_ops": 4})")) {
    EXPECT_EQ(image.dtype(), DType::u16);
    EXPECT_EQ(image.shape(), (Shape{20, 24, 3}));
  }
}

TEST(SixteenBits, BecomeFloats) {
  Images images;
  for (int i = 0; i < 4; ++i)
    images.add(cat(i, ".png"),
               write_png({16, PNG_COLOR_TYPE_RGB}, 11, 7, static_cast<uint32_t>(i)));
  const auto deep = images.decoded(kAsStored);
  const std::string normalize =
      R"(, {"stage": "normalize", "mean": [0.1, 0.5, 0.9], "std": [0.5, 1, 2]})";
  const auto normal = images.decoded(kAsStored + normalize);
  const auto batched =
      images.decoded(kAsStored + (R"(, {"stage": "batch", "size": 4})" + normalize));
  const auto unit =
      images.decoded(kAsStored + std::string(R"(, {"stage": "cast", "to": "f32", "scale": true})"));
  const auto back =
      images.decoded(kAsStored + std::string(R"(, {"stage": "cast", "to": "f32", "scale": true})"
                                             R"(, {"stage": "cast", "to": "u16", "scale": true})"));
  const double mean[] = {0.1, 0.5, 0.9}, deviation[] = {0.5, 1, 2};
  for (size_t n = 0; n < deep.size(); ++n)
    for (size_t i = 0; i < 11 * 7 * 3; ++i) {
      const double value = deep[n].view<uint16_t>()[i] / 65535.0;
      ASSERT_NEAR(normal[n].view<float>()[i], (value - mean[i % 3]) / deviation[i % 3], 1e-5);
      ASSERT_EQ(batched[0].view<float>()[n * 11 * 7 * 3 + i], normal[n].view<float>()[i]);
      ASSERT_NEAR(unit[n].view<float>()[i], value, 1e-6);
      ASSERT_EQ(back[n].view<uint16_t>()[i], deep[n].view<uint16_t>()[i]);
    }
}

TEST(SixteenBits, WhoCannotTakeThemSaysSo) {
  Images images;
  images.add("0.png", write_png({16, PNG_COLOR_TYPE_RGB}, 11, 7, 1));
  for (const std::string& stage :
       {std::string(R"(, {"stage": "brightness_contrast"})"),
        std::string(
            R"(, {"stage": "batch", "size": 1}, {"stage": "normalize", "deferred": true})")})
    try {
      images.decoded(kAsStored + stage);
      ADD_FAILURE() << stage;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("u16"), std::string::npos) << error.what();
    }
  EXPECT_THROW(pipeline::ImageView(Tensor(DType::u16, {2, 2, 3})), Error) << "echo with 'device'";
}

TEST(SixteenBits, AreBatchedPaddedFilteredAndCached) {
  Images images;
  for (int i = 0; i < 4; ++i)
    images.add(cat(i, ".png"), write_png({16, PNG_COLOR_TYPE_GRAY}, static_cast<uint32_t>(5 + i), 7,
                                         static_cast<uint32_t>(i)));
  const auto padded = images.decoded(
      kAsStored + std::string(R"(, {"stage": "padded_batch", "size": 4, "fill": 70000})"));
  ASSERT_EQ(padded[0].shape(), (Shape{4, 7, 8, 1}));
  EXPECT_EQ(padded[0].view<uint16_t>()[7], 65535);
  EXPECT_TRUE(
      images
          .decoded(kAsStored + std::string(R"(, {"stage": "filter", "field": "image", "max": 3})"))
          .empty());
  Json spec = images.spec(
      kAsStored + (R"(, {"stage": "cache", "directory": ")" + images.path("cache") + R"("})"));
  spec["epochs"] = 2;
  Pipeline p(spec);
  const uint64_t first = digest_of_epoch(p);
  EXPECT_EQ(digest_of_epoch(p), first);
}

TEST(Decode, TurnsAsExifSaysUnlessItIsTold) {
  Images images;
  images.add("0.jpg", with_exif(smooth_jpeg({}, 30, 20), exif(6, false)));
  images.add("1.png", with_exif(write_png({}, 30, 20, 1), exif(8, true)));
  for (const Tensor& image : images.decoded(kDecodeStage))
    EXPECT_EQ(image.shape(), (Shape{30, 20, 3}));
  for (const Tensor& image : images.decoded(R"(, {"stage": "decode", "orientation": "stored"})"))
    EXPECT_EQ(image.shape(), (Shape{20, 30, 3}));
}

TEST(Decode, FastShardsHoldWhatFoldersHold) {
  Images images;
  images.add("0.png", with_exif(write_png({}, 30, 20, 1), exif(6, false)));
  images.add("1.png", with_exif(write_png({16, PNG_COLOR_TYPE_GRAY}, 30, 20, 1), exif(5, false)));
  images.add("2.jpg", with_exif(smooth_jpeg({}, 30, 20), exif(3, true)));
  const auto by_size = [](std::vector<Tensor> tensors) {
    std::ranges::sort(tensors, {}, [](const Tensor& t) {
      return std::string(reinterpret_cast<const char*>(t.bytes().data()), t.size_bytes());
    });
    return tensors;
  };
  for (const char* orientation : {"exif", "stored"}) {
    sources::pack_folder(images.path("images"), images.path("out"),
                         {sources::pack_schema(),
                          "pack",
                          {{"format", "fast"}, {"orientation", orientation}, {"overwrite", true}}},
                         nullptr);
    const std::string shard =
        R"({"stage": "fast_shard", "pattern": ")" + images.path("out-*.ets") + "\"}";
    for (const char* dtype : {"u8", "as_stored"}) {
      const std::string decode = cat(R"(, {"stage": "decode", "dtype": ")", dtype,
                                     R"(", "orientation": ")", orientation, "\"}");
      const auto folder = by_size(images.decoded(decode));
      const auto packed = by_size(images.decoded(decode, shard));
      ASSERT_EQ(folder.size(), packed.size());
      for (size_t i = 0; i < folder.size(); ++i) EXPECT_TRUE(same(folder[i], packed[i]));
    }
  }
}

TEST(Decode, TakesNoMoreMemoryThanTheBudget) {
  Images images;
  for (int i = 0; i < 6; ++i)
    images.add(cat(i, ".png"), write_png({}, 40, 30, static_cast<uint32_t>(i)));
  const std::string flat(size_t{6001} * 6000, '\0');
  images.add("3bomb.png", assemble_png(6000, 6000, 8, PNG_COLOR_TYPE_GRAY, flat));
  Json spec = images.spec(R"(, {"stage": "decode", "channels": "rgb"})");
  spec["budget_bytes"] = 50'000'000;
  spec["on_error"] = "skip";
  Pipeline p(spec);
  Item item;
  int good = 0;
  while (p.next(item) == Pipeline::Next::item) ++good;
  EXPECT_EQ(good, 6);
  const Json bad = p.bad_record_list();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_NE(bad[0]["reason"].get<std::string>().find("budget_bytes"), std::string::npos) << bad;
  EXPECT_NE(bad[0]["key"].get<std::string>().find("3bomb"), std::string::npos) << bad;
}

// A JPEG that takes for ever: its last scan comes again and again.
TEST(Decode, CancellingInterruptsIt) {
  JpegKind kind;
  kind.progressive = true;
  const std::string jpeg = smooth_jpeg(kind, 400, 400);
  const size_t last = jpeg.rfind("\xFF\xDA");
  std::string slow = jpeg.substr(0, last);
  for (int i = 0; i < 3'000; ++i) slow += jpeg.substr(last, jpeg.size() - 2 - last);
  Images images;
  images.add("0.jpg", slow + "\xFF\xD9");
  Json spec = images.spec(R"(, {"stage": "decode", "max_scans": 1000000})");
  spec["on_error"] = "quarantine";
  spec["quarantine_dir"] = images.path("bad");
  {
    Pipeline p(spec);
    p.wait(0);  // starts it
    while (p.stats()["stages"][1]["items_in"].get<int>() == 0) p.wait(0.001);
    p.cancel();
    Item item;
    EXPECT_THROW(p.next(item), Error);
  }
  EXPECT_FALSE(std::filesystem::exists(images.path("bad/bad_records.jsonl")))
      << "a record that was interrupted is not bad";
}

TEST(Decode, SaysOnceThatJpegsAreDamaged) {
  Images images;
  const std::string good = smooth_jpeg({}, 80, 64);
  for (int i = 0; i < 3; ++i)
    images.add(cat(i, ".jpg"), good.substr(0, good.size() * 3 / 4) + "\xFF\xD9");
  std::mutex mutex;
  std::vector<std::string> lines;
  set_log_hook([&](LogLevel level, const char* message) {
    const std::scoped_lock lock(mutex);
    if (level == LogLevel::warning) lines.emplace_back(message);
  });
  EXPECT_EQ(images.decoded(kDecodeStage).size(), 3u);
  set_log_hook(nullptr);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find(".jpg"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("premature end"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace etr::test
