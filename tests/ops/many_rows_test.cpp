// Ops that sum over so many rows that a GPU does it in several workgroups and passes, or over fewer
// than one workgroup takes at once.
#include <algorithm>
#include <cmath>

#include "support/op_check.h"

namespace etr::test {
namespace {

struct Rows {
  size_t rows, columns;
};

class ManyRows : public testing::TestWithParam<Rows> {
 protected:
  const size_t rows_ = GetParam().rows, c_ = GetParam().columns;
  const Shape x_{static_cast<int64_t>(rows_), static_cast<int64_t>(c_)};
  const Shape row_{static_cast<int64_t>(c_)};

  // Sums f(i) over the rows, for each column.
  template <typename F>
  Doubles sums(F&& f) const {
    Doubles out(c_);
    for (size_t i = 0; i < rows_ * c_; ++i) out[i % c_] += f(i);
    return out;
  }
};

TEST_P(ManyRows, BatchNorm) {
  for (const bool relu : {false, true}) {
    const auto n = static_cast<double>(rows_);
    const auto normal = [&](const Doubles& x, Doubles& inv) {
      const Doubles sum = sums([&](size_t i) { return x[i]; });
      const Doubles squares = sums([&](size_t i) { return std::pow(x[i] - sum[i % c_] / n, 2); });
      inv.resize(c_);
      for (size_t ch = 0; ch < c_; ++ch) inv[ch] = 1 / std::sqrt(squares[ch] / n + 1e-5);
      Doubles h = x;
      for (size_t i = 0; i < h.size(); ++i) h[i] = (x[i] - sum[i % c_] / n) * inv[i % c_];
      return h;
    };
    const auto y = [&](const std::vector<Doubles>& in) {
      Doubles inv, out = normal(in[0], inv);
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = in[1][i % c_] * out[i] + in[2][i % c_];
        if (relu) out[i] = std::max(out[i], 0.0);
      }
      return out;
    };
    const auto gradients = [&](const std::vector<Doubles>& in, const Doubles& dy) {
      Doubles inv, g = dy;
      const Doubles h = normal(in[0], inv), result = y(in);
      for (size_t i = 0; i < g.size(); ++i)
        if (relu && result[i] <= 0) g[i] = 0;
      const Doubles dbeta = sums([&](size_t i) { return g[i]; });
      const Doubles dgamma = sums([&](size_t i) { return g[i] * h[i]; });
      Doubles dx = g;
      for (size_t i = 0; i < dx.size(); ++i) {
        const size_t ch = i % c_;
        dx[i] = in[1][ch] * inv[ch] * (g[i] - (dbeta[ch] + h[i] * dgamma[ch]) / n);
      }
      return std::vector<Doubles>{dx, dgamma, dbeta};
    };
    check_op({.op = "batch_norm",
              .options = relu ? R"({"relu": true})" : "{}",
              .inputs = {x_, row_, row_, row_, row_},
              .reference = y,
              .tolerance = 1e-4,
              .gradient_tolerance = 1e-3,
              .seed = 2,
              .gradients = gradients});
  }
}

TEST_P(ManyRows, LayerNorm) {
  const auto n = static_cast<double>(c_);
  const auto normal = [&](const Doubles& x, Doubles& inv) {
    Doubles h = x;
    inv.assign(rows_, 0);
    for (size_t r = 0; r < rows_; ++r) {
      double mean = 0, squares = 0;
      for (size_t k = 0; k < c_; ++k) mean += x[r * c_ + k] / n;
      for (size_t k = 0; k < c_; ++k) squares += std::pow(x[r * c_ + k] - mean, 2);
      inv[r] = 1 / std::sqrt(squares / n + 1e-2);
      for (size_t k = 0; k < c_; ++k) h[r * c_ + k] = (x[r * c_ + k] - mean) * inv[r];
    }
    return h;
  };
  const auto y = [&](const std::vector<Doubles>& in) {
    Doubles inv, out = normal(in[0], inv);
    for (size_t i = 0; i < out.size(); ++i) out[i] = in[1][i % c_] * out[i] + in[2][i % c_];
    return out;
  };
  const auto gradients = [&](const std::vector<Doubles>& in, const Doubles& dy) {
    Doubles inv;
    const Doubles h = normal(in[0], inv);
    Doubles dx = dy;
    for (size_t r = 0; r < rows_; ++r) {
      double shift = 0, slope = 0;
      for (size_t k = 0; k < c_; ++k) {
        shift += dy[r * c_ + k] * in[1][k] / n;
        slope += dy[r * c_ + k] * in[1][k] * h[r * c_ + k] / n;
      }
      for (size_t k = 0; k < c_; ++k)
        dx[r * c_ + k] = inv[r] * (dy[r * c_ + k] * in[1][k] - shift - h[r * c_ + k] * slope);
    }
    return std::vector<Doubles>{dx, sums([&](size_t i) { return dy[i] * h[i]; }),
                                sums([&](size_t i) { return dy[i]; })};
  };
  check_op({.op = "layer_norm",
            .options = R"({"epsilon": 1e-2})",
            .inputs = {x_, row_, row_},
            .reference = y,
            .tolerance = 1e-4,
            .gradient_tolerance = 1e-3,
            .gradients = gradients});
}

TEST_P(ManyRows, Bias) {
  check_op({.op = "bias",
            .inputs = {x_, row_},
            .reference =
                [&](const auto& in) {
                  Doubles y = in[0];
                  for (size_t i = 0; i < y.size(); ++i) y[i] += in[1][i % c_];
                  return y;
                },
            .gradients =
                [&](const auto&, const Doubles& dy) {
                  return std::vector<Doubles>{dy, sums([&](size_t i) { return dy[i]; })};
                }});
}

// The sample that is joined to all others gets the sum of their gradients.
class ManySamples : public ManyRows {};

TEST_P(ManySamples, Concat) {
  check_op(
      {.op = "concat",
       .inputs = {x_, {1, row_[0]}},
       .reference =
           [&](const auto& in) {
             Doubles y;
             for (size_t i = 0; i < rows_ * c_; i += c_) {
               y.insert(y.end(), &in[0][i], &in[0][i] + c_);
               y.insert(y.end(), in[1].begin(), in[1].end());
             }
             return y;
           },
       .gradients =
           [&](const auto&, const Doubles& dy) {
             const auto at = [&](size_t i) { return i / c_ * 2 * c_ + i % c_; };
             Doubles first(rows_ * c_);
             for (size_t i = 0; i < first.size(); ++i) first[i] = dy[at(i)];
             return std::vector<Doubles>{first, sums([&](size_t i) { return dy[at(i) + c_]; })};
           }});
}

INSTANTIATE_TEST_SUITE_P(Shapes, ManyRows,
                         testing::Values(Rows{1300, 37}, Rows{4300, 3}, Rows{9000, 1}, Rows{3, 70},
                                         Rows{130, 129}));
INSTANTIATE_TEST_SUITE_P(Shapes, ManySamples,
                         testing::Values(Rows{4300, 3}, Rows{70, 300}, Rows{66, 66000},
                                         Rows{3, 66000}));

TEST(Embedding, CountsManyIds) {
  constexpr size_t kWidth = 5, kEntries = 300;
  check_op({.op = "embedding",
            .inputs = {{kEntries, kWidth}, {35, 31}},
            .reference =
                [](const auto& in) {
                  Doubles y;
                  for (const double id : in[1])
                    for (size_t k = 0; k < kWidth; ++k)
                      y.push_back(in[0][static_cast<size_t>(id) * kWidth + k]);
                  return y;
                },
            .label_input = 1,
            .classes = kEntries,
            .gradients =
                [](const auto& in, const Doubles& dy) {
                  Doubles dw(in[0].size());
                  for (size_t i = 0; i < dy.size(); ++i)
                    dw[static_cast<size_t>(in[1][i / kWidth]) * kWidth + i % kWidth] += dy[i];
                  return std::vector<Doubles>{dw, {}};
                }});
}

}  // namespace
}  // namespace etr::test
