// Boxes: what the stage reads, and that they stay on what they enclose.
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "support/data.h"

namespace etr::test {
namespace {

using pipeline::Item;

Item run_with_boxes(const char* stage, const std::string& options, Item item, uint64_t epoch = 0) {
  const pipeline::StageSpec& spec = pipeline::find_stage(stage);
  const pipeline::StageContext context{1, 2, nullptr, nullptr};
  const auto made = spec.make(Options(spec.options, stage, parse_json(options, stage)), context);
  pipeline::map_of(made)->process(item, epoch);
  return item;
}

Item with_text(const std::string& text, const char* name = "txt") {
  Item item;
  Tensor bytes(DType::u8, {static_cast<int64_t>(text.size())});
  std::copy(text.begin(), text.end(), bytes.mutable_view<char>().begin());
  item.set(name, std::move(bytes));
  return item;
}

std::vector<float> boxes_of(const Item& item) {
  const auto values = pipeline::require_field(item, "boxes").view<float>();
  return {values.begin(), values.end()};
}

TEST(Boxes, ReadsTextAndNumbersAndFillsUp) {
  const Item centred =
      run_with_boxes("boxes", R"({"field": "txt", "format": "centre", "max_boxes": 3})",
                     with_text("2 0.5 0.25 0.5 0.25\n0 0.25 0.75 0.5 0.5\r\n"));
  EXPECT_EQ(boxes_of(centred), (std::vector<float>{2, 0.25f, 0.125f, 0.75f, 0.375f,  //
                                                   0, 0, 0.5f, 0.5f, 1,              //
                                                   -1, 0, 0, 0, 0}));
  EXPECT_EQ(centred.find("txt"), nullptr);
  EXPECT_EQ(pipeline::require_field(centred, "boxes").shape(), (Shape{3, 5}));
  Item numbers;
  Tensor given(DType::f32, {1, 5});
  const float box[] = {1, 0, 0.25f, 0.5f, 1.005f};  // rounded a little too far: cut
  std::copy(std::begin(box), std::end(box), given.mutable_view<float>().begin());
  numbers.set("boxes", given);
  EXPECT_EQ(boxes_of(run_with_boxes("boxes", R"({"max_boxes": 1})", numbers)),
            (std::vector<float>{1, 0, 0.25f, 0.5f, 1}));
  EXPECT_EQ(
      boxes_of(run_with_boxes("boxes", R"({"field": "txt", "max_boxes": 1})", with_text(" \n"))),
      (std::vector<float>{-1, 0, 0, 0, 0}));
}

TEST(Boxes, MistakesAreNamed) {
  const auto error = [](const std::string& text, const std::string& more = "") {
    try {
      run_with_boxes("boxes", R"({"field": "txt", "max_boxes": 2)" + more + "}", with_text(text));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  const auto has = [&](const std::string& text, const char* part, const std::string& more = "") {
    EXPECT_NE(error(text, more).find(part), std::string::npos) << error(text, more);
  };
  has("0 1 2", "3 numbers");
  has("0 0 0 0.5 x", "'x' is not a number");
  has("0 10 20 110 220", "fractions of the image");
  has("0 0.5 0.5 0.4 0.6", "no area");
  has("1.5 0 0 1 1", "whole number");
  has("3 0 0 1 1", "from 0 to 2", R"(, "classes": 3)");
  has("0 0 0 1 nan", "finite");
  has("0 0 0 1 1 0 0 0 1 1 0 0 0 1 1", "more than 'max_boxes' (2)");
}

constexpr int64_t kHeight = 40, kWidth = 60;

// A white rectangle on black, and its box.
Item scene(int64_t left, int64_t top, int64_t right, int64_t bottom) {
  Tensor image(DType::u8, {kHeight, kWidth, 1});
  for (int64_t y = 0; y < kHeight; ++y)
    for (int64_t x = 0; x < kWidth; ++x)
      image.mutable_view<uint8_t>()[static_cast<size_t>(y * kWidth + x)] =
          x >= left && x < right && y >= top && y < bottom ? 255 : 0;
  Item item = run_with_boxes(
      "boxes", R"({"field": "txt", "max_boxes": 2})",
      with_text(cat("7 ", static_cast<double>(left) / kWidth, " ",
                    static_cast<double>(top) / kHeight, " ", static_cast<double>(right) / kWidth,
                    " ", static_cast<double>(bottom) / kHeight)));
  item.set("image", std::move(image));
  return item;
}

// What is white in the image, as a share of it.
std::array<double, 4> white(const Tensor& image) {
  const int64_t h = image.shape()[0], w = image.shape()[1];
  std::array<double, 4> box{1, 1, 0, 0};
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x)
      if (image.view<uint8_t>()[static_cast<size_t>(y * w + x)] >= 128) {
        const auto share = [](int64_t at, int64_t of) {
          return static_cast<double>(at) / static_cast<double>(of);
        };
        box = {std::min(box[0], share(x, w)), std::min(box[1], share(y, h)),
               std::max(box[2], share(x + 1, w)), std::max(box[3], share(y + 1, h))};
      }
  return box;
}

TEST(Boxes, StayOnWhatTheyEnclose) {
  const struct {
    const char *stage, *options;
  } stages[] = {
      {"flip", R"({"probability": 1})"},
      {"flip", R"({"probability": 1, "direction": "vertical"})"},
      {"random_crop", R"({"pad": 9})"},
      {"random_crop", R"({"height": 30, "width": 35})"},
      {"center_crop", R"({"height": 31, "width": 70})"},
      {"pad", R"({"pixels": [3, 5, 7, 11]})"},
      {"resize", R"({"height": 80, "width": 70})"},
      {"random_resized_crop", R"({"height": 64, "width": 64})"},
  };
  int kept = 0;
  for (const auto& [stage, options] : stages)
    for (uint64_t epoch = 0; epoch < 12; ++epoch) {
      SCOPED_TRACE(cat(stage, " ", options, " ", epoch));
      const Item moved = run_with_boxes(stage, options, scene(12, 8, 30, 29), epoch);
      const auto boxes = boxes_of(moved);
      const auto expected = white(*moved.find("image"));
      if (boxes[0] < 0) continue;  // its middle has left
      ++kept;
      EXPECT_EQ(boxes[0], 7);
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(boxes[1 + i], expected[i], 1.0 / 30) << i;
      EXPECT_EQ(boxes[5], -1);
    }
  EXPECT_GT(kept, 80) << "of 96";
}

TEST(Boxes, GoWithTheirMiddle) {
  const char* middle = R"({"height": 20, "width": 20})";  // x from 20 to 40, y from 10 to 30
  EXPECT_EQ(boxes_of(run_with_boxes("center_crop", middle, scene(2, 10, 30, 30)))[0], -1);
  const auto half = boxes_of(run_with_boxes("center_crop", middle, scene(30, 10, 50, 30)));
  EXPECT_EQ(half[0], 7);
  EXPECT_NEAR(half[1], 0.5, 1e-6);
  EXPECT_EQ(half[3], 1);
}

TEST(Boxes, StagesThatCannotMoveThemSaySo) {
  for (const char* stage : {"random_affine", "rand_augment"}) try {
      run_with_boxes(stage, "{}", scene(10, 10, 20, 20));
      FAIL() << stage;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported);
      EXPECT_NE(std::string(error.what()).find("boxes cannot follow"), std::string::npos);
    }
}

}  // namespace
}  // namespace etr::test
