#include "core/rng.h"
#include "gpu/run_once.h"
#include "graph/parameters.h"
#include "ops/conv.h"
#include "support/op_check.h"

namespace etr::test {
namespace {

struct Conv {
  int64_t batch, h, w, c, kernel, filters, stride, pad;
  bool bias = true, relu = false;
  int64_t dilation = 1, groups = 1;

  int64_t reach() const { return (kernel - 1) * dilation + 1; }
  int64_t oh() const { return (h + 2 * pad - reach()) / stride + 1; }
  int64_t ow() const { return (w + 2 * pad - reach()) / stride + 1; }

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
        const int64_t y = oy * stride + ky * dilation - pad;
        const int64_t x = ox * stride + kx * dilation - pad;
        if (y < 0 || y >= h || x < 0 || x >= w) continue;
        const int64_t width = c / groups, first = f / (filters / groups) * width;
        for (int64_t ch = 0; ch < width; ++ch)
          sum += in[0][static_cast<size_t>(((n * h + y) * w + x) * c + first + ch)] *
                 in[1][static_cast<size_t>(((ky * kernel + kx) * width + ch) * filters + f)];
      }
    return relu ? std::max(sum, 0.0) : sum;
  }
};

class Conv2d : public testing::TestWithParam<Conv> {};

TEST_P(Conv2d, MatchesTheReferenceInAllDirections) {
  const Conv conv = GetParam();
  std::vector<Shape> inputs{{conv.batch, conv.h, conv.w, conv.c},
                            {conv.kernel, conv.kernel, conv.c / conv.groups, conv.filters}};
  if (conv.bias) inputs.push_back({conv.filters});
  check_op({.op = "conv2d",
            .options = "{\"stride\": " + std::to_string(conv.stride) +
                       ", \"pad\": " + std::to_string(conv.pad) +
                       ", \"dilation\": " + std::to_string(conv.dilation) +
                       ", \"groups\": " + std::to_string(conv.groups) +
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

// Few channels and filters on even sizes, where two pixels are one row of a product; strides of
// two, whose gradient by x goes by even and odd lines; kernels that give some of these lines
// nothing.
INSTANTIATE_TEST_SUITE_P(
    PairsOfPixels, Conv2d,
    testing::Values(Conv{2, 5, 6, 3, 3, 5, 1, 1}, Conv{1, 7, 8, 16, 3, 16, 1, 1, true, true},
                    Conv{2, 3, 10, 7, 5, 4, 1, 2}, Conv{1, 5, 6, 2, 3, 3, 1, 0},
                    Conv{2, 4, 4, 3, 3, 2, 1, 3, false}, Conv{2, 6, 8, 5, 3, 7, 2, 1},
                    Conv{1, 8, 6, 4, 1, 5, 2, 0}, Conv{2, 4, 6, 3, 2, 4, 2, 0, false},
                    Conv{1, 6, 6, 3, 2, 5, 2, 1}, Conv{1, 8, 8, 5, 5, 3, 2, 2, true, true},
                    Conv{2, 6, 4, 2, 7, 3, 2, 3}, Conv{1, 6, 6, 3, 1, 4, 2, 1},
                    Conv{1, 6, 8, 20, 4, 19, 2, 1}));

// Dilation; groups with one and with several channels and filters; depthwise, with strides too.
INSTANTIATE_TEST_SUITE_P(GroupsAndDilation, Conv2d,
                         testing::Values(Conv{2, 9, 7, 3, 3, 5, 1, 2, true, false, 2},
                                         Conv{1, 11, 11, 2, 3, 3, 2, 1, true, false, 3},
                                         Conv{2, 5, 7, 6, 3, 4, 1, 1, true, false, 1, 2},
                                         Conv{2, 7, 5, 15, 3, 10, 2, 1, true, true, 1, 5},
                                         Conv{2, 5, 5, 4, 3, 8, 1, 1, false, false, 1, 4},
                                         Conv{2, 7, 5, 11, 3, 11, 1, 1, true, true, 1, 11},
                                         Conv{3, 9, 8, 5, 3, 5, 2, 1, true, false, 1, 5},
                                         Conv{1, 9, 9, 3, 3, 3, 1, 2, false, false, 2, 3}));

// A row of pixels: what conv1d is. With the long kernels and dilations of networks for sound, too.
TEST(Conv2dOp, PadsHeightAndWidthApart) {
  struct Row {
    size_t length, kernel, stride, pad, dilation;
  };
  for (const Row& row : {Row{11, 5, 2, 2, 1}, Row{97, 80, 4, 3, 1}, Row{83, 3, 1, 128, 128}}) {
    const size_t outputs =
        (row.length + 2 * row.pad - (row.kernel - 1) * row.dilation - 1) / row.stride + 1;
    check_op({.op = "conv2d",
              .options = Json{{"pad", row.pad},
                              {"pad_height", 0},
                              {"stride", row.stride},
                              {"dilation", row.dilation}}
                             .dump(),
              .inputs = {{2, 1, static_cast<int64_t>(row.length), 3},
                         {1, static_cast<int64_t>(row.kernel), 3, 7}},
              .reference = [=](const auto& in) {
                Doubles y(2 * outputs * 7);
                for (size_t n = 0; n < 2; ++n)
                  for (size_t o = 0; o < outputs; ++o)
                    for (size_t k = 0; k < row.kernel; ++k) {
                      const size_t at = o * row.stride + k * row.dilation - row.pad;
                      if (at >= row.length) continue;  // also in front of the row
                      for (size_t f = 0; f < 7; ++f)
                        for (size_t c = 0; c < 3; ++c)
                          y[(n * outputs + o) * 7 + f] +=
                              in[0][(n * row.length + at) * 3 + c] * in[1][(k * 3 + c) * 7 + f];
                    }
                return y;
              }});
  }
}

struct Transposed {
  int64_t h, w, c, kernel, filters, stride, pad;
};

class Conv2dTranspose : public testing::TestWithParam<Transposed> {};

TEST_P(Conv2dTranspose, ScattersWhatAConvolutionGathers) {
  const Transposed t = GetParam();
  const int64_t oh = (t.h - 1) * t.stride - 2 * t.pad + t.kernel;
  const int64_t ow = (t.w - 1) * t.stride - 2 * t.pad + t.kernel;
  const auto reference = [=](const std::vector<Doubles>& in) {
    Doubles y(static_cast<size_t>(2 * oh * ow * t.filters));
    for (int64_t n = 0; n < 2; ++n)
      for (int64_t iy = 0; iy < t.h; ++iy)
        for (int64_t ix = 0; ix < t.w; ++ix)
          for (int64_t ky = 0; ky < t.kernel; ++ky)
            for (int64_t kx = 0; kx < t.kernel; ++kx) {
              const int64_t oy = iy * t.stride + ky - t.pad, ox = ix * t.stride + kx - t.pad;
              if (oy < 0 || oy >= oh || ox < 0 || ox >= ow) continue;
              for (int64_t f = 0; f < t.filters; ++f)
                for (int64_t c = 0; c < t.c; ++c)
                  y[static_cast<size_t>(((n * oh + oy) * ow + ox) * t.filters + f)] +=
                      in[0][static_cast<size_t>(((n * t.h + iy) * t.w + ix) * t.c + c)] *
                      in[1][static_cast<size_t>(((ky * t.kernel + kx) * t.filters + f) * t.c + c)];
            }
    return y;
  };
  check_op({.op = "conv2d_transpose",
            .options = "{\"stride\": " + std::to_string(t.stride) +
                       ", \"pad\": " + std::to_string(t.pad) + "}",
            .inputs = {{2, t.h, t.w, t.c}, {t.kernel, t.kernel, t.filters, t.c}},
            .reference = reference});
}

INSTANTIATE_TEST_SUITE_P(Shapes, Conv2dTranspose,
                         testing::Values(Transposed{3, 5, 3, 3, 4, 1, 1},
                                         Transposed{5, 3, 4, 4, 5, 2, 1},
                                         Transposed{3, 4, 2, 2, 3, 2, 0},
                                         Transposed{4, 3, 3, 3, 2, 3, 0}));

TEST(Conv2dOp, NamesAKernelThatIsTooLarge) {
  const ops::OpSpec& op = ops::find_op("conv2d");
  const Options options(op.options, "conv2d", nullptr);
  EXPECT_THROW(op.shapes(options, {{1, 3, 3, 2}, {5, 5, 2, 4}}), std::exception);
}

// Odd and even sizes, paddings of all kinds, several parts of a batch, channels off the grid.
TEST(Winograd, MatchesTheReferenceInBothDirections) {
  const Conv cases[] = {{2, 7, 6, 5, 3, 9, 1, 1, true, true},
                        {1, 4, 9, 8, 3, 3, 1, 0, true},
                        {3, 5, 5, 4, 3, 16, 1, 2, false},
                        {2, 6, 6, 3, 3, 4, 1, 3, false},
                        {5, 64, 64, 24, 3, 40, 1, 1, true}};
  for (const gpu::KernelFamily family : families())
    for (const Conv& conv : cases) {
      gpu::Kernels& k = kernels(family);
      gpu::Arena arena(k.device(), gpu::MemoryUse::device);
      gpu::CommandList commands;
      ops::Emitter emit(k, arena, commands);
      Rng rng(5);
      std::vector<Doubles> host;
      const auto tensor = [&](const Shape& shape) {
        Tensor values(DType::f32, shape);
        for (float& v : values.mutable_view<float>()) v = rng.uniform() - 0.5f;
        host.emplace_back(values.view<float>().begin(), values.view<float>().end());
        const ops::DeviceTensor out = emit.scratch(shape);
        graph::upload(k.device(), values, out);
        return out;
      };
      const auto u = [](int64_t v) { return static_cast<uint32_t>(v); };
      const ops::ConvGeometry g{u(conv.batch), u(conv.h),       u(conv.w), u(conv.c), u(conv.oh()),
                                u(conv.ow()),  u(conv.filters), 3,         3,         1,
                                u(conv.pad),   u(conv.pad),     1,         1};
      const ops::DeviceTensor x = tensor({conv.batch, conv.h, conv.w, conv.c}),
                              w = tensor({3, 3, conv.c, conv.filters}), b = tensor({conv.filters});
      const ops::DeviceTensor y = emit.scratch({conv.batch, conv.oh(), conv.ow(), conv.filters});
      emit_winograd(emit, g, x, w, false, conv.bias ? b : ops::DeviceTensor{}, conv.relu, y);
      gpu::run_once(k.device(), commands);
      const Doubles wanted = conv.reference(host);
      const Tensor got = graph::download(k.device(), y);
      for (size_t i = 0; i < wanted.size(); ++i)
        ASSERT_NEAR(static_cast<double>(got.view<float>()[i]), wanted[i], 2e-5)
            << family_name(family) << i;
      EXPECT_TRUE(ops::winograd_fits(*k.device(), g));
    }
}

}  // namespace
}  // namespace etr::test
