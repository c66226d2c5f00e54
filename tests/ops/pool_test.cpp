// max_pool, avg_pool, global_avg_pool.
#include "support/op_check.h"

namespace etr::test {
namespace {

struct Pool {
  int64_t batch, h, w, c, window, stride, pad;

  Doubles reference(const Doubles& x) const {
    const int64_t oh = (h + 2 * pad - window) / stride + 1;
    const int64_t ow = (w + 2 * pad - window) / stride + 1;
    Doubles y;
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t oy = 0; oy < oh; ++oy)
        for (int64_t ox = 0; ox < ow; ++ox)
          for (int64_t ch = 0; ch < c; ++ch) y.push_back(largest(x, n, oy, ox, ch));
    return y;
  }

  double largest(const Doubles& x, int64_t n, int64_t oy, int64_t ox, int64_t ch) const {
    double best = -1e300;
    for (int64_t ky = 0; ky < window; ++ky)
      for (int64_t kx = 0; kx < window; ++kx) {
        const int64_t py = oy * stride + ky - pad, px = ox * stride + kx - pad;
        if (py < 0 || py >= h || px < 0 || px >= w) continue;
        best = std::max(best, x[static_cast<size_t>(((n * h + py) * w + px) * c + ch)]);
      }
    return best;
  }
};

class MaxPool : public testing::TestWithParam<Pool> {};

TEST_P(MaxPool, MatchesTheReference) {
  const Pool p = GetParam();
  check_op({.op = "max_pool",
            .options = "{\"window\": " + std::to_string(p.window) + ", \"stride\": " +
                       std::to_string(p.stride) + ", \"pad\": " + std::to_string(p.pad) + "}",
            .inputs = {{p.batch, p.h, p.w, p.c}},
            .reference = [p](const auto& in) { return p.reference(in[0]); }});
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, MaxPool,
    testing::Values(Pool{2, 7, 5, 3, 2, 2, 0}, Pool{3, 6, 4, 5, 2, 2, 0}, Pool{1, 7, 9, 2, 3, 2, 1},
                    Pool{2, 5, 5, 3, 3, 1, 1}, Pool{2, 7, 7, 1, 3, 3, 0}, Pool{1, 8, 5, 3, 2, 3, 1},
                    // many images in a slice, some not full; rows of several workgroups
                    Pool{70, 2, 2, 3, 2, 2, 0}, Pool{37, 5, 9, 7, 3, 2, 1},
                    Pool{2, 140, 12, 3, 2, 2, 0}, Pool{2, 6, 40, 3, 2, 2, 1},
                    // blocks of pixels in the padding; windows too many for blocks
                    Pool{2, 10, 8, 3, 7, 3, 4}, Pool{2, 6, 5, 2, 5, 1, 2}));

struct Mean {
  int64_t h, w, window, stride, pad, outputs = 0;

  std::pair<int64_t, int64_t> under(int64_t o, int64_t size) const {
    if (outputs) return {o * size / outputs, ((o + 1) * size + outputs - 1) / outputs};
    return {std::max<int64_t>(o * stride - pad, 0), std::min(o * stride - pad + window, size)};
  }

  Doubles reference(const Doubles& x) const {
    constexpr int64_t kBatch = 2, kChannels = 3;
    const int64_t oh = outputs ? outputs : (h + 2 * pad - window) / stride + 1;
    const int64_t ow = outputs ? outputs : (w + 2 * pad - window) / stride + 1;
    Doubles y;
    for (int64_t n = 0; n < kBatch; ++n)
      for (int64_t oy = 0; oy < oh; ++oy)
        for (int64_t ox = 0; ox < ow; ++ox)
          for (int64_t ch = 0; ch < kChannels; ++ch) {
            const auto [y0, y1] = under(oy, h);
            const auto [x0, x1] = under(ox, w);
            double sum = 0;
            for (int64_t py = y0; py < y1; ++py)
              for (int64_t px = x0; px < x1; ++px)
                sum += x[static_cast<size_t>(((n * h + py) * w + px) * kChannels + ch)];
            y.push_back(sum / static_cast<double>((y1 - y0) * (x1 - x0)));
          }
    return y;
  }
};

class AvgPool : public testing::TestWithParam<Mean> {};

TEST_P(AvgPool, MatchesTheReference) {
  const Mean p = GetParam();
  const Json options{
      {"window", p.window}, {"stride", p.stride}, {"pad", p.pad}, {"output_size", p.outputs}};
  check_op({.op = "avg_pool",
            .options = options.dump(),
            .inputs = {{2, p.h, p.w, 3}},
            .reference = [p](const auto& in) { return p.reference(in[0]); }});
}

// Adaptive windows that overlap, that do not, and more outputs than pixels.
INSTANTIATE_TEST_SUITE_P(Shapes, AvgPool,
                         testing::Values(Mean{7, 5, 2, 2, 0}, Mean{7, 9, 3, 2, 1},
                                         Mean{5, 5, 3, 1, 1}, Mean{7, 11, 1, 1, 0, 3},
                                         Mean{8, 4, 1, 1, 0, 4}, Mean{5, 3, 1, 1, 0, 7}));

TEST(GlobalAvgPool, MatchesTheReference) {
  check_op({.op = "global_avg_pool", .inputs = {{3, 5, 7, 11}}, .reference = [](const auto& in) {
              Doubles y(3 * 11);
              for (size_t i = 0; i < in[0].size(); ++i)
                y[i / (35 * 11) * 11 + i % 11] += in[0][i] / 35;
              return y;
            }});
}

}  // namespace
}  // namespace etr::test
