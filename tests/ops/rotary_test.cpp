#include <cmath>

#include "core/error.h"
#include "support/op_check.h"

namespace etr::test {
namespace {

// x [n, t, width], table [t, head]: cosines, then sines.
Doubles rotate(const Doubles& x, const Doubles& table, size_t t, size_t width, size_t heads,
               size_t head) {
  Doubles out = x;
  for (size_t row = 0; row < x.size() / width; ++row)
    for (size_t h = 0; h < heads; ++h)
      for (size_t i = 0; i < head / 2; ++i) {
        const double c = table[row % t * head + i], s = table[row % t * head + head / 2 + i];
        const size_t a = row * width + h * head + i, b = a + head / 2;
        out[a] = x[a] * c - x[b] * s;
        out[b] = x[b] * c + x[a] * s;
      }
  return out;
}

// Rotates some heads of a row, and all of it.
TEST(Rotary, MatchesTheReference) {
  for (const int64_t heads : {1, 3}) {
    const int64_t head = 6, width = 18, positions = 7;
    check_op({.op = "rotary",
              .options = "{\"heads\": " + std::to_string(heads) + "}",
              .inputs = {{5, positions, width}, {positions, head}},
              .reference = [&](const auto& in) {
                return rotate(in[0], in[1], static_cast<size_t>(positions),
                              static_cast<size_t>(width), static_cast<size_t>(heads),
                              static_cast<size_t>(head));
              }});
  }
}

TEST(Rotary, ErrorsNameWhatDoesNotFit) {
  const ops::OpSpec& op = ops::find_op("rotary");
  const auto shapes = [&](int heads, const std::vector<Shape>& in) {
    return op.shapes(Options(op.options, "rotary", {{"heads", heads}}), in);
  };
  EXPECT_EQ(shapes(2, {{3, 5, 24}, {5, 8}}).output, (Shape{3, 5, 24}));
  EXPECT_THROW(shapes(4, {{3, 5, 24}, {5, 8}}), Error);
  EXPECT_THROW(shapes(2, {{3, 5, 24}, {6, 8}}), Error);
  EXPECT_THROW(shapes(2, {{3, 5, 24}, {5, 7}}), Error);
}

}  // namespace
}  // namespace etr::test
