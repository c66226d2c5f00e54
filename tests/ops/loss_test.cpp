// softmax_cross_entropy, pointwise losses, label_weights, accuracy, mean_rows.
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
            .inputs = {{5, 11}, {5}},
            .reference = [](const auto& in) { return cross_entropy(in, 11, 0.1); },
            .label_input = 1,
            .classes = 11,
            .label_smoothing = 0.1f});
}

TEST(SoftmaxCrossEntropy, WeighsRowsOfSequences) {
  check_op({.op = "softmax_cross_entropy",
            .inputs = {{3, 5, 37}, {3, 5}, {3, 5}},
            .reference =
                [](const auto& in) {
                  Doubles loss = cross_entropy(in, 37, 0);
                  for (size_t r = 0; r < loss.size(); ++r) loss[r] *= in[2][r];
                  return loss;
                },
            .label_input = 1,
            .classes = 37});
}

struct Pointwise {
  const char* op;
  std::function<double(double, double)> f;
};

class PointwiseLoss : public testing::TestWithParam<Pointwise> {};

TEST_P(PointwiseLoss, IsTheMeanOfARow) {
  const Pointwise& p = GetParam();
  check_op({.op = p.op,
            .options = std::string(p.op) == "huber" ? R"({"delta": 0.7})" : "{}",
            .inputs = {{7, 43}, {7, 43}},
            .reference = [&](const auto& in) {
              Doubles loss(7);
              for (size_t i = 0; i < in[0].size(); ++i)
                loss[i / 43] += p.f(in[0][i], in[1][i]) / 43;
              return loss;
            }});
}

INSTANTIATE_TEST_SUITE_P(
    Losses, PointwiseLoss,
    testing::Values(Pointwise{"squared_error",
                              [](double x, double y) { return (x - y) * (x - y); }},
                    Pointwise{"absolute_error", [](double x, double y) { return std::abs(x - y); }},
                    Pointwise{"huber",
                              [](double x, double y) {
                                const double d = std::abs(x - y);
                                return d <= 0.7 ? d * d / 2 : 0.7 * (d - 0.35);
                              }},
                    Pointwise{"binary_cross_entropy",
                              [](double x, double y) {
                                const double p = 1 / (1 + std::exp(-x));
                                return -y * std::log(p) - (1 - y) * std::log(1 - p);
                              }}),
    [](const auto& row) { return row.param.op; });

TEST(LabelWeights, AreThoseOfTheClassesAndNoneOfTheIgnored) {
  check_op({.op = "label_weights",
            .options = R"({"ignored": 2})",
            .inputs = {{5, 13}, {4}},
            .reference =
                [](const auto& in) {
                  Doubles w;
                  for (const double t : in[0])
                    w.push_back(t == 2 ? 0 : in[1][static_cast<size_t>(t)]);
                  return w;
                },
            .label_input = 0,
            .classes = 4,
            .gradient = false});
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
  check_op({.op = "mean_rows", .inputs = {{5, 7}}, .reference = mean_of(21), .valid_rows = 3});
  check_op({.op = "mean_rows",
            .inputs = {{3, 11}, {3, 11}},
            .reference =
                [](const auto& in) {
                  double sum = 0, weight = 0;
                  for (size_t i = 0; i < in[0].size(); ++i) sum += in[0][i], weight += in[1][i];
                  return Doubles{sum / weight};
                },
            .low = 0.25,
            .high = 1});
}

}  // namespace
}  // namespace etr::test
