// Decodes the outputs of detectors.
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "nn/detections.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

// Rows of two classes: scores are exact where one logit is far above the others.
struct Row {
  float background, a, b;
  std::array<float, 4> offsets;
  std::array<float, 4> anchor;
};

Tensor output_of(const std::vector<Row>& rows) {
  Tensor out(DType::f32, {1, static_cast<int64_t>(rows.size()), 11});
  float* to = out.mutable_view<float>().data();
  for (const Row& row : rows) {
    for (const float v : {row.background, row.a, row.b}) *to++ = v;
    to = std::copy(row.offsets.begin(), row.offsets.end(), to);
    to = std::copy(row.anchor.begin(), row.anchor.end(), to);
  }
  return out;
}

std::vector<std::vector<float>> rows_of(const Tensor& t) {
  std::vector<std::vector<float>> rows;
  for (size_t at = 0; at < static_cast<size_t>(t.count()); at += 6) {
    const auto row = t.view<float>().subspan(at, 6);
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

TEST(Detections, DecodesAndSuppresses) {
  const std::array<float, 4> none{0, 0, 0, 0}, middle{0.5f, 0.5f, 0.2f, 0.4f};
  const float two = static_cast<float>(std::log(2.0)) / 0.2f;  // twice as wide
  const Tensor found = nn::detections(
      output_of({{0, 2, 0, none, middle},                      // class 0
                 {0, 9, 0, {0.5f, 0, 0, 0}, middle},           // the same thing, seen better
                 {0, 0, 3, {0, 0, two, 0}, middle},            // class 1 lies over it
                 {5, 0, 0, none, {0.2f, 0.2f, 0.1f, 0.1f}},    // background
                 {0, 4, 0, none, {0.0f, 0.9f, 0.2f, 0.2f}}}),  // reaches out of the image
      {0.5f, 0.45f, 4});
  EXPECT_EQ(found.shape(), (Shape{1, 4, 6}));
  const auto rows = rows_of(found);
  const std::vector<std::vector<float>> expected{{0, 0.41f, 0.3f, 0.61f, 0.7f, 0.99975f},
                                                 {0, 0.0f, 0.8f, 0.1f, 1.0f, 0.96467f},
                                                 {1, 0.3f, 0.3f, 0.7f, 0.7f, 0.90945f},
                                                 {-1, 0, 0, 0, 0, 0}};
  for (size_t r = 0; r < expected.size(); ++r)
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(rows[r][i], expected[r][i], 1e-4) << r << " " << i;
}

TEST(Detections, KeepsTheBestOfMany) {
  std::vector<Row> grid;
  for (int i = 0; i < 100; ++i)
    grid.push_back({0,
                    1 + 0.05f * static_cast<float>(i),
                    0,
                    {0, 0, 0, 0},
                    {0.05f + 0.1f * static_cast<float>(i % 10),
                     0.05f + 0.1f * static_cast<float>(i / 10), 0.1f, 0.1f}});
  const auto rows = rows_of(nn::detections(output_of(grid), {0.01f, 0.45f, 7}));
  ASSERT_EQ(rows.size(), 7u);
  for (size_t r = 0; r < 7; ++r) {
    EXPECT_EQ(rows[r][0], 0);
    EXPECT_NEAR(rows[r][1], 0.9f - 0.1f * static_cast<float>(r), 1e-5)
        << "the last ones score highest";
  }
}

TEST(Detections, RefusesOtherOutputs) {
  EXPECT_THROW(nn::detections(Tensor(DType::f32, {2, 10}), {}), Error);
  EXPECT_THROW(nn::detections(Tensor(DType::i32, {2, 3, 10}), {}), Error);
  for (const int64_t most : {0, 2'000'000}) {
    const std::string text = error_text([&] { nn::detections(output_of({}), {0.5f, 0.5f, most}); });
    EXPECT_NE(text.find("it must lie in [1, 1048576]"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace etr::test
