// softmax_cross_entropy, mse, accuracy, mean_rows.
#include <cmath>

#include "support/op_check.h"

namespace etr::test {
namespace {

Doubles cross_entropy(const std::vector<Doubles>& in, size_t classes, double smoothing) {
  Doubles loss(in[1].size());
  for (size_t r = 0; r < loss.size(); ++r) {
    double sum = 0, aimed = 0;
    for (size_t k = 0; k < classes; ++k) {
      const double x = in[0][r * classes + k];
      const bool hit = static_cast<size_t>(in[1][r]) == k;
      sum += std::exp(x);
      aimed += x * ((hit ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes));
    }
    loss[r] = std::log(sum) - aimed;
  }
  return loss;
}

TEST(SoftmaxCrossEntropy, MatchesTheReference) {
  check_op({.op = "softmax_cross_entropy",
            .inputs = {{13, 7}, {13}},
            .reference = [](const auto& in) { return cross_entropy(in, 7, 0); },
            .label_input = 1,
            .classes = 7});
}

TEST(SoftmaxCrossEntropy, SmoothsLabels) {
  check_op({.op = "softmax_cross_entropy",
            .options = R"({"label_smoothing": 0.1})",
            .inputs = {{5, 11}, {5}},
            .reference = [](const auto& in) { return cross_entropy(in, 11, 0.1); },
            .label_input = 1,
            .classes = 11});
}

TEST(Mse, MatchesTheReference) {
  check_op({.op = "mse", .inputs = {{7, 13}, {7, 13}}, .reference = [](const auto& in) {
              Doubles loss(7);
              for (size_t i = 0; i < in[0].size(); ++i)
                loss[i / 13] += std::pow(in[0][i] - in[1][i], 2) / 13;
              return loss;
            }});
}

TEST(Accuracy, CountsTheLargestLogit) {
  check_op({.op = "accuracy",
            .inputs = {{29, 5}, {29}},
            .reference =
                [](const auto& in) {
                  Doubles hit(29);
                  for (size_t r = 0; r < 29; ++r) {
                    const auto row = in[0].begin() + static_cast<long>(r * 5);
                    hit[r] = std::max_element(row, row + 5) - row == static_cast<long>(in[1][r]);
                  }
                  return hit;
                },
            .label_input = 1,
            .classes = 5,
            .gradient = false});
}

TEST(MeanRows, AveragesTheValidRowsOnly) {
  const auto mean_of = [](size_t valid) {
    return [valid](const std::vector<Doubles>& in) {
      double sum = 0;
      for (size_t i = 0; i < valid; ++i) sum += in[0][i];
      return Doubles{sum / static_cast<double>(valid)};
    };
  };
  check_op({.op = "mean_rows", .inputs = {{17}}, .reference = mean_of(17)});
  check_op({.op = "mean_rows", .inputs = {{17}}, .reference = mean_of(5), .valid_rows = 5});
}

}  // namespace
}  // namespace etr::test
