#include <cmath>

#include "support/op_check.h"

namespace etr::test {
namespace {

constexpr double kEpsilon = 1e-5;

Doubles normalise(const std::vector<Doubles>& in, size_t rows, size_t c, bool relu) {
  Doubles y(rows * c);
  for (size_t ch = 0; ch < c; ++ch) {
    double mean = 0, var = 0;
    for (size_t r = 0; r < rows; ++r) mean += in[0][r * c + ch] / static_cast<double>(rows);
    for (size_t r = 0; r < rows; ++r)
      var += std::pow(in[0][r * c + ch] - mean, 2) / static_cast<double>(rows);
    for (size_t r = 0; r < rows; ++r) {
      const double v =
          in[1][ch] * (in[0][r * c + ch] - mean) / std::sqrt(var + kEpsilon) + in[2][ch];
      y[r * c + ch] = relu ? std::max(v, 0.0) : v;
    }
  }
  return y;
}

TEST(BatchNorm, TrainsOnTheBatchStatistics) {
  // 3 * 7 * 5 = 105 rows: one slice; 2 * 13 * 11 = 286 rows: slices of unequal length.
  check_op({.op = "batch_norm",
            .inputs = {{3, 7, 5, 5}, {5}, {5}, {5}, {5}},
            .reference = [](const auto& in) { return normalise(in, 105, 5, false); },
            .tolerance = 1e-4,
            .gradient_tolerance = 1e-3});
  check_op({.op = "batch_norm",
            .inputs = {{2, 13, 11, 3}, {3}, {3}, {3}, {3}},
            .reference = [](const auto& in) { return normalise(in, 286, 3, false); },
            .tolerance = 1e-4,
            .gradient_tolerance = 1e-3});
}

// So many that a GPU sums them in three passes.
TEST(BatchNorm, HasManyRows) {
  check_op({.op = "batch_norm",
            .inputs = {{2600, 1}, {1}, {1}, {1}, {1}},
            .reference = [](const auto& in) { return normalise(in, 2600, 1, false); },
            .tolerance = 1e-4,
            .gradient_tolerance = 1e-3});
}

TEST(BatchNorm, FusedRelu) {
  check_op({.op = "batch_norm",
            .options = R"({"relu": true})",
            .inputs = {{67, 17}, {17}, {17}, {17}, {17}},
            .reference = [](const auto& in) { return normalise(in, 67, 17, true); },
            .tolerance = 1e-4,
            .gradient_tolerance = 2e-3,
            .seed = 5});
}

TEST(BatchNorm, EvaluatesWithTheRunningStatistics) {
  // An epsilon of 1 keeps the square root real: the generator draws variances from [-1, 1).
  const OpCase c{.op = "batch_norm",
                 .options = R"({"epsilon": 1.0})",
                 .inputs = {{11, 7}, {7}, {7}, {7}, {7}},
                 .reference =
                     [](const auto& in) {
                       Doubles y(77);
                       for (size_t i = 0; i < 77; ++i) {
                         const size_t ch = i % 7;
                         y[i] = in[1][ch] * (in[0][i] - in[3][ch]) / std::sqrt(in[4][ch] + 1.0) +
                                in[2][ch];
                       }
                       return y;
                     },
                 .gradient = false,
                 .training = false};
  check_op(c);
}

}  // namespace
}  // namespace etr::test
