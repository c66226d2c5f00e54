// layer_norm, group_norm, softmax.
#include <cmath>

#include "core/error.h"
#include "support/op_check.h"

namespace etr::test {
namespace {

TEST(Softmax, MatchesTheReference) {
  for (const bool logarithm : {false, true})
    check_op({.op = "softmax",
              .options = logarithm ? R"({"logarithm": true})" : "{}",
              .inputs = {{3, 5, 37}},
              .reference =
                  [&](const auto& in) {
                    Doubles y = in[0];
                    for (size_t r = 0; r < y.size(); r += 37) {
                      double sum = 0;
                      for (size_t k = 0; k < 37; ++k) sum += std::exp(in[0][r + k]);
                      for (size_t k = 0; k < 37; ++k)
                        y[r + k] =
                            logarithm ? in[0][r + k] - std::log(sum) : std::exp(in[0][r + k]) / sum;
                    }
                    return y;
                  },
              .low = -5,
              .high = 5});
}

// h of x's rows of `width`, by mean and variance or by the root mean square alone.
Doubles normalised(const Doubles& x, size_t width, bool rms) {
  Doubles h = x;
  for (size_t r = 0; r < x.size(); r += width) {
    double mean = 0, squares = 0;
    for (size_t k = 0; k < width && !rms; ++k) mean += x[r + k] / static_cast<double>(width);
    for (size_t k = 0; k < width; ++k) squares += std::pow(x[r + k] - mean, 2);
    const double inv = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
    for (size_t k = 0; k < width; ++k) h[r + k] = (x[r + k] - mean) * inv;
  }
  return h;
}

TEST(LayerNorm, MatchesTheReference) {
  for (const bool rms : {false, true}) {
    std::vector<Shape> inputs{{3, 43, 19}, {19}};
    if (!rms) inputs.push_back({19});
    check_op({.op = "layer_norm", .inputs = inputs, .reference = [&](const auto& in) {
                Doubles y = normalised(in[0], 19, rms);
                for (size_t i = 0; i < y.size(); ++i)
                  y[i] = y[i] * in[1][i % 19] + (rms ? 0 : in[2][i % 19]);
                return y;
              }});
  }
}

struct Groups {
  size_t n, pixels, c, groups;
};

class GroupNorm : public testing::TestWithParam<Groups> {};

TEST_P(GroupNorm, MatchesTheReference) {
  const auto [n, pixels, c, groups] = GetParam();
  const size_t width = c / groups;
  const auto reference = [=, n = n, pixels = pixels, c = c](const std::vector<Doubles>& in) {
    // To [n, groups, pixels, width], normalised, and back.
    const auto at = [=](size_t i) {
      const size_t ch = i % c, p = i / c % pixels, image = i / (c * pixels);
      return ((image * (c / width) + ch / width) * pixels + p) * width + ch % width;
    };
    Doubles grouped(in[0].size()), y(in[0].size());
    for (size_t i = 0; i < y.size(); ++i) grouped[at(i)] = in[0][i];
    grouped = normalised(grouped, pixels * width, false);
    for (size_t i = 0; i < y.size(); ++i) y[i] = grouped[at(i)] * in[1][i % c] + in[2][i % c];
    return y;
  };
  const auto s = [](size_t v) { return static_cast<int64_t>(v); };
  check_op({.op = "group_norm",
            .options = "{\"groups\": " + std::to_string(groups) + "}",
            .inputs = {{s(n), s(pixels), s(c)}, {s(c)}, {s(c)}},
            .reference = reference});
}

INSTANTIATE_TEST_SUITE_P(Shapes, GroupNorm,
                         testing::Values(Groups{3, 5, 12, 4}, Groups{2, 7, 15, 1},
                                         Groups{2, 11, 5, 5}, Groups{1, 1, 38, 2}));

TEST(GroupNormOp, NamesChannelsThatDoNotSplit) {
  const ops::OpSpec& op = ops::find_op("group_norm");
  EXPECT_THROW(op.shapes(Options(op.options, "group_norm", {{"groups", 3}}), {{2, 5, 7}, {7}, {7}}), Error);
}

}  // namespace
}  // namespace etr::test
