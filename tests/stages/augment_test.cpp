// What the stages on images, labels and batches compute, against plain references.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>

#include "core/error.h"
#include "pipeline/pipeline.h"
#include "stages/image_ops.h"
#include "support/child.h"
#include "support/data.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

using pipeline::Item;
using stages::Filter;

// Runs one map stage on an item.
Item run(const char* stage, const char* options, Item item, uint64_t epoch = 0) {
  const pipeline::StageSpec& spec = pipeline::find_stage(stage);
  const pipeline::StageContext context{1, 2, nullptr, nullptr};
  const auto made = spec.make(Options(spec.options, stage, parse_json(options, stage)), context);
  pipeline::map_of(made)->process(item, epoch);
  return item;
}
Item with_image(Tensor image) {
  Item item;
  item.set("image", std::move(image));
  return item;
}

// Values that differ everywhere: [H, W, C].
Tensor ramp(int64_t h, int64_t w, int64_t c, DType dtype = DType::u8) {
  Tensor out(dtype, {h, w, c});
  for (size_t i = 0; i < static_cast<size_t>(h * w * c); ++i)
    if (dtype == DType::u8)
      out.mutable_view<uint8_t>()[i] = static_cast<uint8_t>((i * 37 + i * i * 5) % 256);
    else
      out.mutable_view<float>()[i] = static_cast<float>((i * 37 + i * i * 5) % 256) / 255;
  return out;
}
float at(const Tensor& t, int64_t y, int64_t x, int64_t c) {
  const auto i = static_cast<size_t>((y * t.shape()[1] + x) * t.shape()[2] + c);
  return t.dtype() == DType::u8 ? t.view<uint8_t>()[i] : t.view<float>()[i];
}

// Antialiased resampling by its definition, in double.
double reference(const Tensor& image, const stages::Box& box, int64_t h, int64_t w, Filter filter,
                 int64_t y, int64_t x, int64_t c) {
  const auto weight = [&](double centre, double scale, int64_t k) {
    const double stretch = std::max(scale, 1.0),
                 d = std::abs(static_cast<double>(k) + 0.5 - centre) / stretch;
    if (filter == Filter::area) return d < 0.5 ? 1.0 : 0.0;
    return std::max(0.0, 1 - d);
  };
  const double sy = box.height / static_cast<double>(h), sx = box.width / static_cast<double>(w);
  const double cy = box.y + (static_cast<double>(y) + 0.5) * sy,
               cx = box.x + (static_cast<double>(x) + 0.5) * sx;
  double sum = 0, weights = 0;
  for (int64_t i = 0; i < image.shape()[0]; ++i)
    for (int64_t k = 0; k < image.shape()[1]; ++k) {
      const double both = weight(cy, sy, i) * weight(cx, sx, k);
      sum += both * at(image, i, k, c);
      weights += both;
    }
  return sum / weights;
}

TEST(Resample, IsTheWeightedMeanOfTheDefinition) {
  for (const DType dtype : {DType::u8, DType::f32})
    for (const int64_t channels : {1, 3, 4})
      for (const auto& [h, w] :
           std::vector<std::pair<int64_t, int64_t>>{{7, 5}, {23, 31}, {13, 11}, {3, 40}}) {
        const Tensor image = ramp(13, 11, channels, dtype);
        const stages::Box box{1.25, 0.5, 9.5, 8.75};
        const Tensor out = stages::resample(image, box, h, w, Filter::bilinear);
        for (int64_t y = 0; y < h; ++y)
          for (int64_t x = 0; x < w; ++x)
            for (int64_t c = 0; c < channels; ++c)
              ASSERT_NEAR(at(out, y, x, c), reference(image, box, h, w, Filter::bilinear, y, x, c),
                          dtype == DType::u8 ? 0.5001 : 1e-5)
                  << h << " " << w << " " << y << " " << x;
      }
}

TEST(Resample, AreaAveragesBlocksAndNearestCopies) {
  const Tensor image = ramp(8, 12, 3, DType::f32);
  const Tensor small = stages::resample(image, {0, 0, 8, 12}, 4, 4, Filter::area);
  for (int64_t y = 0; y < 4; ++y)
    for (int64_t x = 0; x < 4; ++x) {
      float sum = 0;
      for (int i = 0; i < 6; ++i) sum += at(image, 2 * y + i / 3, 3 * x + i % 3, 1);
      EXPECT_NEAR(at(small, y, x, 1), sum / 6, 1e-5);
    }
  const Tensor large = stages::resample(image, {0, 0, 8, 12}, 16, 24, Filter::nearest);
  for (int64_t y = 0; y < 16; ++y)
    for (int64_t x = 0; x < 24; ++x) EXPECT_EQ(at(large, y, x, 2), at(image, y / 2, x / 2, 2));
  const Tensor same = stages::resample(image, {0, 0, 8, 12}, 8, 12, Filter::bilinear);
  EXPECT_EQ(same.data(), image.data()) << "nothing to do is no copy";
}

TEST(Resize, KeepsTheShapeOrTheShorterSide) {
  const auto shape = [](const char* options) {
    return run("resize", options, with_image(ramp(10, 25, 3))).find("image")->shape();
  };
  EXPECT_EQ(shape(R"({"height": 4, "width": 6})"), (Shape{4, 6, 3}));
  EXPECT_EQ(shape(R"({"height": 4})"), (Shape{4, 10, 3}));
  EXPECT_EQ(shape(R"({"shorter_side": 20})"), (Shape{20, 50, 3}));
  EXPECT_THROW(shape("{}"), Error);
  EXPECT_THROW(shape(R"({"height": 4, "shorter_side": 4})"), Error);
  EXPECT_EQ(error_text([] {
              run("resize", R"({"shorter_side": 128})", with_image(ramp(200000, 1, 1, DType::u8)));
            }),
            "an image of 200000 x 1 pixels would become one of 25600000 x 128, and 268435456 "
            "pixels are the most");
}

// Each makes an image of 64 MB, which two of them may not do at once. The next may begin before the
// image before it is freed, but four at once would need 256 MB.
TEST(Resize, ThreadsShareTheBudget) {
  const Json given{{"budget_bytes", 100'000'000}};
  const Options budget(pipeline::pipeline_schema(), "pipeline", given);
  const pipeline::StageSpec& spec = pipeline::find_stage("resize");
  const pipeline::StageContext context{1, 2, nullptr, nullptr, &budget};
  const auto resize =
      spec.make(Options(spec.options, "resize", Json{{"shorter_side", 8000}}), context);
  const Tensor small = ramp(8, 8, 1);
  EXPECT_EQ(in_child([&] {
              if (!limit_memory(240'000'000)) return 90;
              std::atomic<int> failures = 0;
              std::vector<std::thread> threads;
              for (int i = 0; i < 4; ++i)
                threads.emplace_back([&] {
                  try {
                    Item item = with_image(small);
                    pipeline::map_of(resize)->process(item, 0);
                  } catch (const std::exception& error) {
                    std::fprintf(stderr, "resize: %s\n", error.what());
                    ++failures;
                  }
                });
              for (std::thread& thread : threads) thread.join();
              return failures.load();
            }),
            0);
}

TEST(RandomResizedCrop, KeepsAreaAndRatioAndDrawsAnew) {
  std::set<float> seen;
  for (uint64_t epoch = 0; epoch < 20; ++epoch)
    seen.insert(at(*run("random_resized_crop", R"({"height": 8, "width": 8})",
                        with_image(ramp(40, 30, 3)), epoch)
                        .find("image"),
                   0, 0, 0));
  EXPECT_GT(seen.size(), 8u);
  // A part that cannot be found: the whole image in the allowed shape.
  const Item item =
      run("random_resized_crop", R"({"height": 4, "width": 4, "ratio_min": 50, "ratio_max": 60})",
          with_image(ramp(40, 30, 1)));
  EXPECT_EQ(item.find("image")->shape(), (Shape{4, 4, 1}));
}

TEST(CropAndPad, FillOutside) {
  const Tensor image = ramp(3, 4, 2);
  const Tensor padded =
      *run("pad", R"({"pixels": [1, 2, 0, 1], "fill": 1})", with_image(image)).find("image");
  EXPECT_EQ(padded.shape(), (Shape{4, 7, 2}));
  EXPECT_EQ(at(padded, 0, 3, 0), 255);
  EXPECT_EQ(at(padded, 1, 2, 1), at(image, 0, 0, 1));
  const Tensor middle =
      *run("center_crop", R"({"height": 3, "width": 4})", with_image(padded)).find("image");
  EXPECT_EQ(middle.shape(), (Shape{3, 4, 2}));
  EXPECT_EQ(at(middle, 2, 2, 0), at(padded, 2, 3, 0));
}

TEST(Warp, TurnsMovesAndScales) {
  const Tensor image = ramp(9, 9, 1);
  const auto same = stages::warp(image, stages::affine(9, 9, 0, 1, 0, 0, 0), 0);
  const auto turned = stages::warp(image, stages::affine(9, 9, 90, 1, 0, 0, 0), 0);
  const auto moved = stages::warp(image, stages::affine(9, 9, 0, 1, 0, 2, -3), 0.2f);
  for (int64_t y = 0; y < 9; ++y)
    for (int64_t x = 0; x < 9; ++x) {
      EXPECT_EQ(at(same, y, x, 0), at(image, y, x, 0));
      EXPECT_EQ(at(turned, 8 - x, y, 0), at(image, y, x, 0))
          << "anticlockwise: the top right corner goes to the top left";
      EXPECT_EQ(at(moved, y, x, 0), y >= 2 && x < 6 ? at(image, y - 2, x + 3, 0) : 51);
    }
}

TEST(ColorJitter, WithoutRangesIsTheSame) {
  const Tensor image = ramp(5, 7, 3);
  EXPECT_EQ(run("color_jitter", "{}", with_image(image)).find("image")->view<uint8_t>()[17],
            image.view<uint8_t>()[17]);
}

TEST(Colours, GrayHueAndBlend) {
  const Tensor image = ramp(5, 7, 3);
  const Tensor gray = stages::to_gray(image);
  const double luma =
      0.299 * at(image, 2, 3, 0) + 0.587 * at(image, 2, 3, 1) + 0.114 * at(image, 2, 3, 2);
  for (int c = 0; c < 3; ++c) EXPECT_NEAR(at(gray, 2, 3, c), luma, 0.51);
  const Tensor third = stages::turn_hue(Tensor(image), 1.0f / 3);  // red becomes green
  EXPECT_NEAR(at(third, 1, 1, 1), at(image, 1, 1, 0), 1.01);
  EXPECT_NEAR(at(third, 1, 1, 2), at(image, 1, 1, 1), 1.01);
  const Tensor half = stages::blend(Tensor(image), gray, 0.5f);
  EXPECT_NEAR(at(half, 2, 3, 0), (at(image, 2, 3, 0) + luma) / 2, 1.01);
}

TEST(GaussianBlur, KeepsTheMeanAndSmoothes) {
  Tensor image(DType::f32, {21, 21, 1});
  std::ranges::fill(image.mutable_view<float>(), 0.0f);
  image.mutable_view<float>()[10 * 21 + 10] = 1;
  const Tensor out =
      *run("gaussian_blur", R"({"sigma_min": 1.5, "sigma_max": 1.5})", with_image(image))
           .find("image");
  const auto values = out.view<float>();
  EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0), 1, 1e-4);
  for (const int d : {1, 2, 3})  // a Gaussian falls by exp(-d^2 / (2 sigma^2))
    EXPECT_NEAR(at(out, 10, 10 + d, 0) / at(out, 10, 10, 0), std::exp(-d * d / (2 * 2.25)), 1e-4);
}

TEST(RandomErasing, ErasesOneRectangle) {
  Tensor image(DType::u8, {20, 30, 3});
  std::ranges::fill(image.mutable_view<uint8_t>(), uint8_t{200});
  const Item item =
      run("random_erasing", R"({"probability": 1, "area_min": 0.2, "area_max": 0.2, "value": 0.3})",
          with_image(image));
  int erased = 0, top = 20, bottom = -1, left = 30, right = -1;
  for (int y = 0; y < 20; ++y)
    for (int x = 0; x < 30; ++x)
      if (const float pixel = at(*item.find("image"), y, x, 1); pixel != 200) {
        EXPECT_EQ(pixel, 77) << "0.3 of 255, rounded";
        ++erased;
        top = std::min(top, y), bottom = std::max(bottom, y), left = std::min(left, x),
        right = std::max(right, x);
      }
  EXPECT_NEAR(erased, 120, 25);
  EXPECT_EQ(erased, (bottom - top + 1) * (right - left + 1));
}

TEST(RandAugment, EveryDistortionKeepsShapeAndRange) {
  for (uint64_t epoch = 0; epoch < 60; ++epoch)
    for (const DType dtype : {DType::u8, DType::f32}) {
      const Tensor out = *run("rand_augment", R"({"num_ops": 3, "magnitude": 10})",
                              with_image(ramp(9, 7, 3, dtype)), epoch)
                              .find("image");
      EXPECT_EQ(out.shape(), (Shape{9, 7, 3}));
      if (dtype == DType::u8) continue;
      for (const float v : out.view<float>()) ASSERT_TRUE(v >= 0 && v <= 1) << v;
    }
}

// Equalisation is one of the fourteen; at magnitude 0 most others change nothing.
TEST(RandAugment, LeavesABlackBackgroundBlack) {
  for (uint64_t epoch = 0; epoch < 60; ++epoch) {
    Tensor drawn(DType::u8, {16, 16, 1});
    std::fill(drawn.mutable_view<uint8_t>().begin(), drawn.mutable_view<uint8_t>().end(), 0);
    for (int i = 0; i < 8; ++i) drawn.mutable_view<uint8_t>()[100 + i] = 255;
    const Tensor out = *run("rand_augment", R"({"num_ops": 1, "magnitude": 0, "fill": 0})",
                            with_image(drawn), epoch)
                            .find("image");
    EXPECT_LT(out.view<uint8_t>()[0], 8) << "epoch " << epoch;
  }
}

// Equalisation has nothing to spread there.
TEST(RandAugment, LeavesAnImageOfOneValueAsItIs) {
  for (uint64_t epoch = 0; epoch < 60; ++epoch) {
    Tensor plain(DType::u8, {16, 16, 1});
    std::ranges::fill(plain.mutable_view<uint8_t>(), uint8_t{100});
    const Tensor out =
        *run("rand_augment", R"({"num_ops": 1, "magnitude": 0})", with_image(plain), epoch)
             .find("image");
    for (const uint8_t v : out.view<uint8_t>()) ASSERT_EQ(v, 100) << "epoch " << epoch;
  }
}

TEST(Cast, RoundsAndClamps) {
  Tensor x(DType::f32, {5});
  const float values[] = {-1, 0.4f, 0.6f, 254.7f, 300};
  std::copy(values, values + 5, x.mutable_view<float>().begin());
  const Tensor u8 = *run("cast", R"({"to": "u8"})", with_image(x)).find("image");
  EXPECT_EQ(std::vector<int>(u8.view<uint8_t>().begin(), u8.view<uint8_t>().end()),
            (std::vector<int>{0, 0, 1, 255, 255}));
  const Tensor back = *run("cast", R"({"to": "f32", "scale": true})", with_image(u8)).find("image");
  EXPECT_EQ(back.view<float>()[4], 1.0f);
}

TEST(LabelMap, NumbersNamesAndKnowsTheNearest) {
  Item item;
  item.set("cls", Tensor::text("dog\n"));
  EXPECT_EQ(
      run("label_map", R"({"names": "cat,dog,bird"})", item).find("label")->view<int32_t>()[0], 1);
  item.set("cls", Tensor::text("brid"));
  try {
    run("label_map", R"({"names": "cat,dog,bird"})", item);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'bird'"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(run("label_map", R"({"names": "cat,cat"})", item), Error);
}

TEST(Label, TakesNumbersToo) {
  Item item;
  item.set("label", Tensor::scalar(DType::i32, 2));
  const Item hot = run("label", R"({"classes": 4, "one_hot": true})", item);
  EXPECT_EQ(hot.find("label")->view<float>()[2], 1);
  item.set("label", Tensor::scalar(DType::i32, 4));
  EXPECT_THROW(run("label", R"({"classes": 4})", item), Error);
  item.set("label", Tensor(DType::f32, {2}));
  EXPECT_EQ(error_text([&] { run("label", R"({"classes": 4})", item); }),
            "field 'label' is f32 [2], and a label is text or one i32");
}

// A batch of images of one value each, with one-hot labels.
Item batch_of(int64_t n) {
  Item batch;
  Tensor images(DType::f32, {n, 6, 6, 1}), labels(DType::f32, {n, n});
  std::ranges::fill(labels.mutable_view<float>(), 0.0f);
  for (int64_t i = 0; i < n; ++i) {
    const auto row = images.mutable_view<float>().subspan(static_cast<size_t>(i * 36), 36);
    std::ranges::fill(row, static_cast<float>(i));
    labels.mutable_view<float>()[static_cast<size_t>(i * n + i)] = 1;
  }
  batch.set("image", std::move(images));
  batch.set("label", std::move(labels));
  batch.batch.size = static_cast<int32_t>(n);
  return batch;
}

TEST(MixupAndCutmix, LabelsTellWhatTheImagesHold) {
  for (const char* stage : {"mixup", "cutmix"}) {
    int mixed = 0;
    for (uint64_t epoch = 0; epoch < 30; ++epoch) {
      const Item out = run(stage, R"({"alpha": 1})", batch_of(5), epoch);
      const auto images = out.find("image")->view<float>(),
                 labels = out.find("label")->view<float>();
      for (size_t i = 0; i < 5; ++i) {
        // The mean value of an image is that of its label, for either stage.
        double pixels = 0, label = 0, total = 0;
        for (size_t k = 0; k < 36; ++k) pixels += static_cast<double>(images[i * 36 + k]) / 36;
        for (size_t k = 0; k < 5; ++k) {
          label += static_cast<double>(labels[i * 5 + k]) * static_cast<double>(k);
          total += static_cast<double>(labels[i * 5 + k]);
        }
        EXPECT_NEAR(pixels, label, 1e-4) << stage;
        EXPECT_NEAR(total, 1, 1e-5);
        mixed += labels[i * 5 + i] < 0.999f;
      }
    }
    EXPECT_GT(mixed, 60) << stage;
  }
  Item single = batch_of(2);
  single.batch.size = 0;
  EXPECT_THROW(run("mixup", "{}", single), Error);
  Item integers = batch_of(2);
  integers.set("label", Tensor(DType::i32, {2}));
  EXPECT_THROW(run("mixup", "{}", integers), Error);
}

// Every second gamma variable of this alpha is too small for a double.
TEST(MixupAndCutmix, ASmallAlphaLeavesTheSamplesUnmixed) {
  int whole = 0, own = 0;
  for (uint64_t epoch = 0; epoch < 400; ++epoch) {
    const Item out = run("mixup", R"({"alpha": 0.001})", batch_of(5), epoch);
    const auto labels = out.find("label")->view<float>();
    bool mixed = false;
    for (const float label : labels) mixed = mixed || (label > 0.01f && label < 0.99f);
    whole += !mixed;
    for (size_t i = 0; i < 5; ++i) own += labels[i * 5 + i] > 0.5f;
  }
  EXPECT_GT(whole, 380);
  // A sample keeps itself in half of the batches, and is its own partner in a fifth of the others.
  EXPECT_NEAR(own / 2000.0, 0.6, 0.08);
}

// As a function of the program may leave them.
TEST(MixupAndCutmix, ImagesAndLabelsMustBeAsMany) {
  for (const char* stage : {"mixup", "cutmix"})
    for (const int64_t images : {2, 9}) {
      Item batch = batch_of(5);
      batch.set("image", *batch_of(images).find("image"));
      try {
        run(stage, R"({"alpha": 1})", std::move(batch));
        ADD_FAILURE() << stage;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::invalid_argument);
        EXPECT_NE(std::string(error.what()).find(cat("[", images, ", 6, 6, 1]")), std::string::npos)
            << error.what();
      }
    }
}

// An echo node gives copies of one sample, and several batches may begin with them.
TEST(MixupAndCutmix, BatchesOfOneOrdinalAreMixedDifferently) {
  for (const char* stage : {"mixup", "cutmix"}) {
    std::set<std::vector<float>> labels;
    for (uint32_t number = 0; number < 20; ++number) {
      Item batch = batch_of(5);
      batch.ordinal = 7;
      batch.batch_number = number;
      const Item out = run(stage, R"({"alpha": 1})", std::move(batch));
      const auto of_batch = out.find("label")->view<float>();
      labels.emplace(of_batch.begin(), of_batch.end());
    }
    EXPECT_GT(labels.size(), stage == std::string("mixup") ? 19u : 15u) << stage;
  }
}

TEST(PaddedBatch, PadsAndTellsLengths) {
  TempDir dir;
  std::ofstream(dir.path("a.txt")) << "abc\nd\nefghi\nzz\n";
  pipeline::Pipeline p(parse_json(
      R"({"epochs": 1, "stages": [{"stage": "text_lines", "pattern": ")" + dir.path("a.txt") +
          R"("}, {"stage": "padded_batch", "size": 3, "fill": 46}]})",
      "test"));
  Item batch;
  p.next(batch);
  EXPECT_EQ(batch.find("text")->shape(), (Shape{3, 5}));
  const auto text = batch.find("text")->view<char>();
  EXPECT_EQ(std::string(text.begin(), text.end()), "abc..d....efghi");
  const auto lengths = batch.find("text_length")->view<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(lengths.begin(), lengths.end()), (std::vector<int32_t>{3, 1, 5}));
  p.next(batch);
  EXPECT_EQ(batch.find("text")->shape(), (Shape{1, 2}));
  EXPECT_EQ(batch.find("text_length")->view<int32_t>()[0], 2) << "all batches have the same fields";
}

TEST(PaddedBatch, LeavesALengthOfTheSamplesAsItIs) {
  TempDir dir;
  std::ofstream(dir.path("a.jsonl")) << R"({"n": 7, "x": [1, 2]})"
                                        "\n"
                                        R"({"n": 8, "x": [1, 2, 3]})"
                                        "\n";
  for (const char* columns : {"x_length:i32=n,x:f32", "x:f32,x_length:i32=n"}) {
    const Json source{{"stage", "jsonl"}, {"pattern", dir.path("a.jsonl")}, {"columns", columns}};
    pipeline::Pipeline p(
        {{"epochs", 1}, {"stages", {source, {{"stage", "padded_batch"}, {"size", 2}}}}});
    Item batch;
    p.next(batch);
    EXPECT_EQ(batch.fields.size(), 2u) << columns;
    const auto lengths = batch.find("x_length")->view<int32_t>();
    EXPECT_EQ(std::vector<int32_t>(lengths.begin(), lengths.end()), (std::vector<int32_t>{7, 8}));
  }
}

TEST(Flip, VerticalTurnsUpsideDown) {
  const Tensor image = ramp(5, 4, 3);
  const Tensor out =
      *run("flip", R"({"probability": 1, "direction": "vertical"})", with_image(image))
           .find("image");
  for (int64_t y = 0; y < 5; ++y) EXPECT_EQ(at(out, y, 2, 1), at(image, 4 - y, 2, 1));
}

TEST(Filter, DropsByValueAndIsRestored) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 60);
  const Json spec = parse_json(
      R"({"seed": 1, "stages": [{"stage": "webdataset", "pattern": ")" + pattern +
          R"("}, {"stage": "label"}, {"stage": "filter", "field": "label", "values": [2, 7]},
                                   {"stage": "keep", "fields": "label"}, {"stage": "shuffle", "buffer": 5}, {"stage": "batch", "size": 3}]})",
      "test");
  pipeline::Pipeline p(spec);
  const auto labels = labels_of_epoch(p);
  EXPECT_EQ(labels.size(), 12u);
  for (const int32_t label : labels) EXPECT_TRUE(label == 2 || label == 7) << label;
  EXPECT_EQ(p.stats()["bad_records"], 0);
  Item item;
  p.next(item);
  pipeline::Pipeline restored(spec);
  restored.restore(p.save());
  EXPECT_EQ(labels_of_epoch(p), labels_of_epoch(restored));
}

}  // namespace
}  // namespace etr::test
