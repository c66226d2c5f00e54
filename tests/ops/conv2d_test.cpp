#include "support/op_check.h"

namespace etr::test {
namespace {

struct Conv {
  int64_t batch, h, w, c, kernel, filters, stride, pad;
  bool bias = true, relu = false;

  int64_t oh() const { return (h + 2 * pad - kernel) / stride + 1; }
  int64_t ow() const { return (w + 2 * pad - kernel) / stride + 1; }

  Doubles reference(const std::vector<Doubles>& in) const {
    Doubles y(static_cast<size_t>(batch * oh() * ow() * filters));
    size_t out = 0;
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t oy = 0; oy < oh(); ++oy)
        for (int64_t ox = 0; ox < ow(); ++ox)
          for (int64_t f = 0; f < filters; ++f) y[out++] = pixel(in, n, oy, ox, f);
    return y;
  }

  double pixel(const std::vector<Doubles>& in, int64_t n, int64_t oy, int64_t ox, int64_t f) const {
    double sum = bias ? in[2][static_cast<size_t>(f)] : 0;
    for (int64_t ky = 0; ky < kernel; ++ky)
      for (int64_t kx = 0; kx < kernel; ++kx) {
        const int64_t y = oy * stride + ky - pad, x = ox * stride + kx - pad;
        if (y < 0 || y >= h || x < 0 || x >= w) continue;
        for (int64_t ch = 0; ch < c; ++ch)
          sum += in[0][static_cast<size_t>(((n * h + y) * w + x) * c + ch)] *
                 in[1][static_cast<size_t>(((ky * kernel + kx) * c + ch) * filters + f)];
      }
    return relu ? std::max(sum, 0.0) : sum;
  }
};

class Conv2d : public testing::TestWithParam<Conv> {};

TEST_P(Conv2d, MatchesTheReferenceInAllDirections) {
  const Conv conv = GetParam();
  std::vector<Shape> inputs{{conv.batch, conv.h, conv.w, conv.c},
                            {conv.kernel, conv.kernel, conv.c, conv.filters}};
  if (conv.bias) inputs.push_back({conv.filters});
  check_op({.op = "conv2d",
            .options = "{\"stride\": " + std::to_string(conv.stride) +
                       ", \"pad\": " + std::to_string(conv.pad) +
                       ", \"relu\": " + (conv.relu ? "true" : "false") + "}",
            .inputs = inputs,
            .reference = [conv](const auto& in) { return conv.reference(in); }});
}

// Channels off and on the grid of four and eight, more filters than a tile, strides that do not
// divide, kernels of one, no padding and more padding than "same".
INSTANTIATE_TEST_SUITE_P(
    Shapes, Conv2d,
    testing::Values(Conv{2, 7, 5, 3, 3, 5, 1, 1}, Conv{3, 5, 7, 4, 3, 7, 1, 1, false},
                    Conv{1, 11, 7, 1, 5, 3, 2, 2}, Conv{2, 5, 3, 8, 3, 67, 1, 1},
                    Conv{2, 7, 11, 5, 3, 4, 3, 0}, Conv{5, 3, 3, 7, 1, 11, 1, 0},
                    Conv{1, 5, 5, 2, 3, 3, 2, 2}, Conv{2, 6, 5, 3, 2, 5, 2, 1, true, true},
                    Conv{7, 4, 9, 16, 3, 8, 1, 1, true, true}));

TEST(Conv2dOp, NamesAKernelThatIsTooLarge) {
  const ops::OpSpec& op = ops::find_op("conv2d");
  const Options options(op.options, "conv2d", nullptr);
  EXPECT_THROW(op.shapes(options, {{1, 3, 3, 2}, {5, 5, 2, 4}}), std::exception);
}

}  // namespace
}  // namespace etr::test
