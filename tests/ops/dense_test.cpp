#include "support/op_check.h"

namespace etr::test {
namespace {

Doubles dense(const std::vector<Doubles>& in, size_t m, size_t k, size_t n, bool relu) {
  Doubles y(m * n);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      double sum = in.size() > 2 ? in[2][j] : 0;
      for (size_t q = 0; q < k; ++q) sum += in[0][i * k + q] * in[1][q * n + j];
      y[i * n + j] = relu ? std::max(sum, 0.0) : sum;
    }
  return y;
}

struct Size {
  int64_t m, k, n;
};

class Dense : public testing::TestWithParam<Size> {};

TEST_P(Dense, MatchesTheReference) {
  const auto [m, k, n] = GetParam();
  const auto reference = [=](const std::vector<Doubles>& in) {
    return dense(in, static_cast<size_t>(m), static_cast<size_t>(k), static_cast<size_t>(n), false);
  };
  check_op({.op = "dense", .inputs = {{m, k}, {k, n}, {n}}, .reference = reference});
}

// Primes, one-row and one-column cases, exact tiles, and one beyond a tile in each direction.
INSTANTIATE_TEST_SUITE_P(
    Shapes, Dense,
    testing::Values(Size{1, 1, 1}, Size{7, 5, 3}, Size{13, 29, 10}, Size{24, 16, 64},
                    Size{33, 11, 67}, Size{53, 3, 131}, Size{64, 32, 4}, Size{131, 17, 5},
                    Size{328, 3, 5}));  // slices of k that unrolling does not divide

TEST(DenseOp, WithoutBias) {
  check_op({.op = "dense", .inputs = {{7, 13}, {13, 5}}, .reference = [](const auto& in) {
              return dense(in, 7, 13, 5, false);
            }});
}

TEST(DenseOp, LeadingAxesAreRows) {
  check_op({.op = "dense", .inputs = {{3, 5, 7}, {7, 11}, {11}}, .reference = [](const auto& in) {
              return dense(in, 15, 7, 11, false);
            }});
}

TEST(DenseOp, TakesTheWeightTransposed) {
  check_op({.op = "dense",
            .options = R"({"transposed": true})",
            .inputs = {{13, 7}, {11, 7}, {11}},
            .reference = [](const auto& in) {
              std::vector<Doubles> flipped = in;
              for (size_t i = 0; i < 77; ++i) flipped[1][i] = in[1][i % 11 * 7 + i / 11];
              return dense(flipped, 13, 7, 11, false);
            }});
}

TEST(DenseOp, TransposesSeveralTiles) {
  check_op({.op = "dense",
            .options = R"({"transposed": true})",
            .inputs = {{3, 37}, {70, 37}, {70}},
            .reference = [](const auto& in) {
              std::vector<Doubles> flipped = in;
              for (size_t i = 0; i < 70 * 37; ++i) flipped[1][i] = in[1][i % 70 * 37 + i / 70];
              return dense(flipped, 3, 37, 70, false);
            }});
}

TEST(DenseOp, FusedRelu) {
  check_op({.op = "dense",
            .options = R"({"relu": true})",
            .inputs = {{11, 7}, {7, 19}, {19}},
            .reference = [](const auto& in) { return dense(in, 11, 7, 19, true); },
            .seed = 3});
}

TEST(DenseOp, NamesTheShapesThatDoNotFit) {
  const ops::OpSpec& op = ops::find_op("dense");
  const Options options(op.options, "dense", nullptr);
  try {
    op.shapes(options, {{3, 4}, {5, 6}});
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "dense: x [3, 4] does not fit w [5, 6]");
  }
}

}  // namespace
}  // namespace etr::test
