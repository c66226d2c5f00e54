// Ops that sum over so many rows that a GPU does it in several workgroups and passes, or over fewer
// than one workgroup takes at once. Ops whose grids would have more workgroups along an axis than
// devices must take (65,535).
#include <algorithm>
#include <bit>
#include <cmath>

#include "core/json.h"
#include "gpu/glsl.h"
#include "gpu/run_once.h"
#include "graph/parameters.h"
#include "ops/conv.h"
#include "ops/gemm_kernels.h"
#include "ops/pointwise.h"
#include "support/error_text.h"
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
                                         Rows{130, 129},
                                         // CPU devices sum these in pairs, some rows side by side.
                                         Rows{4288, 3}, Rows{1312, 37}, Rows{96, 16}, Rows{648, 40},
                                         Rows{64, 129}, Rows{33, 64}, Rows{10, 521},
                                         Rows{64, 521}));
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

// Rows of so many channels: more than 65,535 workgroups of 32.
constexpr int64_t kWide = 2'100'000;

TEST(GridLimits, BroadcastsOverWideRows) {
  const auto at = [](size_t i) { return i % kWide; };
  check_op({.op = "binary",
            .options = R"({"function": "multiply"})",
            .inputs = {{2, kWide}, {1, kWide}},
            .reference =
                [&](const auto& in) {
                  Doubles y = in[0];
                  for (size_t i = 0; i < y.size(); ++i) y[i] *= in[1][at(i)];
                  return y;
                },
            .gradients =
                [&](const auto& in, const Doubles& dy) {
                  Doubles da = dy, db(in[1].size());
                  for (size_t i = 0; i < dy.size(); ++i)
                    da[i] *= in[1][at(i)], db[at(i)] += dy[i] * in[0][i];
                  return std::vector<Doubles>{da, db};
                }});
}

// Emits commands for a device of its own.
struct Emission {
  gpu::Kernels kernels;
  gpu::Arena arena{kernels.device(), gpu::MemoryUse::device};
  gpu::CommandList commands;
  ops::Emitter emit{kernels, arena, commands};

  explicit Emission(const gpu::DeviceOptions& device)
      : kernels(std::make_shared<gpu::Device>(device)) {}

  ops::DeviceTensor filled(const Shape& shape, float value = 1) {
    const ops::DeviceTensor out = emit.scratch(shape);
    emit.add(gpu::Fill{out.buffer, std::bit_cast<uint32_t>(value)});
    return out;
  }
};

// However many there are: also more than the largest workgroups could take side by side.
TEST(GridLimits, TakesANumberForAllElements) {
  for (const gpu::KernelFamily family : families()) {
    gpu::DeviceOptions device = device_options(family);
    device.lowered.max_groups = device.lowered.max_workgroup = 256;
    Emission on(device);
    ops::Emitter& emit = on.emit;
    const auto filled = [&](int64_t count, float value) { return on.filled({count}, value); };
    constexpr int64_t kCount = 100'001;
    const ops::OpSpec& op = ops::find_op("binary");
    const Options options(op.options, "binary", {{"function", "multiply"}});
    ops::OpCall call{options};
    call.inputs = {filled(kCount, 3), filled(1, 2)};
    call.output = filled(kCount, 0);
    call.output_grad = filled(kCount, 5);
    call.input_grads = {filled(kCount, 0), {}};
    op.forward(call, emit);
    op.backward(call, emit);
    gpu::run_once(on.kernels.device(), on.commands);
    const Tensor y = graph::download(on.kernels.device(), call.output),
                 da = graph::download(on.kernels.device(), call.input_grads[0]);
    for (const float v : y.view<float>()) ASSERT_EQ(v, 6);
    for (const float v : da.view<float>()) ASSERT_EQ(v, 10);
  }
}

TEST(GridLimits, FusedKernelsTakeWideRows) {
  if (!gpu::can_compile_glsl()) GTEST_SKIP() << "there is no compiler for fused kernels";
  for (const gpu::KernelFamily family : families()) {
    gpu::DeviceOptions device = device_options(family);
    device.lowered.max_groups = device.lowered.max_workgroup = 256;
    Emission on(device);
    ops::Emitter& emit = on.emit;
    constexpr int64_t kColumns = 20'001;
    Tensor row(DType::f32, {kColumns});
    for (size_t i = 0; i < kColumns; ++i) row.mutable_view<float>()[i] = static_cast<float>(i);
    const Options options({}, "bias", Json::object());
    ops::OpCall call{options};
    call.inputs = {on.filled({64, kColumns}, 0.5f), emit.scratch({kColumns})};
    call.output = emit.scratch({64, kColumns});
    graph::upload(on.kernels.device(), row, call.inputs[1]);
    ops::find_op("bias").forward(call, emit);
    ops::compile(on.kernels, std::get<gpu::Dispatch>(on.commands.back()));
    gpu::run_once(on.kernels.device(), on.commands);
    const Tensor y = graph::download(on.kernels.device(), call.output);
    for (size_t i = 0; i < 64 * kColumns; ++i)
      ASSERT_EQ(y.view<float>()[i], 0.5f + static_cast<float>(i % kColumns));
  }
}

// An operation's own kernel and the one that is compiled for it give the same numbers, and write
// nothing else. Each tensor lies between guards, `offset` words behind a multiple of 256 bytes.
class CompiledKernels {
 public:
  CompiledKernels(gpu::KernelFamily family, int64_t rows, int64_t columns, uint64_t offset)
      : on_(device_options(family)), rows_(rows), columns_(columns), offset_(offset) {}

  void check(const char* op, const Json& values, std::vector<Shape> shapes) {
    SCOPED_TRACE(cat(op, " of ", rows_, " by ", columns_, ", ", offset_, " words off"));
    const Options options(ops::find_op(op).options, op, values);
    ops::OpCall call{options};
    for (const Shape& shape : shapes) call.inputs.push_back(between_guards(shape));
    call.output = between_guards(shapes[0]);
    on_.commands.clear();
    ops::find_op(op).forward(call, on_.emit);
    ASSERT_EQ(on_.commands.size(), 1u);
    const std::vector<float> plain = run();
    ops::compile(on_.kernels, std::get<gpu::Dispatch>(on_.commands.back()));
    EXPECT_EQ(run(), plain);
  }

 private:
  static constexpr float kGuard = -77;

  ops::DeviceTensor between_guards(const Shape& shape) {
    const auto count = static_cast<uint64_t>(element_count(shape));
    const ops::DeviceTensor all = on_.emit.scratch({static_cast<int64_t>(count + 128)});
    Tensor values(DType::f32, all.shape);
    for (size_t i = 0; i < count + 128; ++i) {
      const bool inside = i >= 64 + offset_ && i < 64 + offset_ + count;
      values.mutable_view<float>()[i] = inside ? static_cast<float>(i * 37 % 101) / 50 - 1 : kGuard;
    }
    graph::upload(on_.kernels.device(), values, all);
    last_ = all;
    return {all.buffer.slice((64 + offset_) * 4, count * 4), shape};
  }

  // Returns the result with its guards.
  std::vector<float> run() {
    gpu::run_once(on_.kernels.device(), on_.commands);
    const Tensor all = graph::download(on_.kernels.device(), last_);
    const auto view = all.view<float>();
    for (size_t i = 0; i < 64 + offset_; ++i) EXPECT_EQ(view[i], kGuard);
    for (size_t i = view.size() - 64 + offset_; i < view.size(); ++i) EXPECT_EQ(view[i], kGuard);
    return {view.begin(), view.end()};
  }

  Emission on_;
  int64_t rows_, columns_;
  uint64_t offset_;
  ops::DeviceTensor last_;
};

TEST(CompiledKernels, EqualTheirOperations) {
  if (!gpu::can_compile_glsl()) GTEST_SKIP() << "there is no compiler for fused kernels";
  constexpr int64_t kShapes[][2] = {{3, 5},  {5, 6},   {33, 6}, {64, 16},    {2, 1},
                                    {64, 3}, {140, 5}, {9, 64}, {40, 20'001}};
  for (const gpu::KernelFamily family : families())
    for (const auto [rows, columns] : kShapes)
      for (const uint64_t offset : {0, 1, 2}) {
        CompiledKernels kernels(family, rows, columns, offset);
        kernels.check("bias", Json::object(), {{rows, columns}, {columns}});
        kernels.check("binary", {{"function", "add"}, {"relu", true}},
                      {{rows, columns}, {rows, columns}});
        kernels.check("unary", {{"function", "relu"}}, {{rows, columns}});
      }
}

TEST(GridLimits, JoinsWideRows) {
  check_op({.op = "concat",
            .inputs = {{2, kWide}, {2, 1}},
            .reference =
                [](const auto& in) {
                  Doubles y(in[0].begin(), in[0].begin() + kWide);
                  y.push_back(in[1][0]);
                  y.insert(y.end(), in[0].begin() + kWide, in[0].end());
                  y.push_back(in[1][1]);
                  return y;
                },
            .gradients =
                [](const auto&, const Doubles& dy) {
                  Doubles da(dy.begin(), dy.begin() + kWide);
                  da.insert(da.end(), dy.begin() + kWide + 1, dy.end() - 1);
                  return std::vector<Doubles>{da, {dy[kWide], dy.back()}};
                }});
}

TEST(GridLimits, PoolsWideRows) {
  constexpr size_t kChannels = 1'050'000;
  const auto best = [](const Doubles& x, size_t ch) {
    size_t out = ch;
    for (size_t tap = 1; tap < 4; ++tap)
      if (x[tap * kChannels + ch] > x[out]) out = tap * kChannels + ch;
    return out;
  };
  check_op({.op = "max_pool",
            .options = R"({"window": 2})",
            .inputs = {{1, 2, 2, kChannels}},
            .reference =
                [&](const auto& in) {
                  Doubles y;
                  for (size_t ch = 0; ch < kChannels; ++ch) y.push_back(in[0][best(in[0], ch)]);
                  return y;
                },
            .gradients =
                [&](const auto& in, const Doubles& dy) {
                  Doubles dx(in[0].size());
                  for (size_t ch = 0; ch < kChannels; ++ch) dx[best(in[0], ch)] = dy[ch];
                  return std::vector<Doubles>{dx};
                }});
}

// More iterations than a loop of Mesa 22's lavapipe makes -----------------------------------------

// Of an image; a window over all of it takes 254 * 256 + 2 iterations.
TEST(LongLoops, AverageManyPixels) {
  for (const auto& [op, options, side] :
       {std::tuple("global_avg_pool", "{}", 300), {"avg_pool", R"({"output_size": 1})", 254}})
    check_op({.op = op,
              .options = options,
              .inputs = {{1, side, side, 1}},
              .reference =
                  [](const auto& in) {
                    double sum = 0;
                    for (const double x : in[0]) sum += x;
                    return Doubles{sum / static_cast<double>(in[0].size())};
                  },
              .tolerance = 1e-4,
              .gradients =
                  [](const auto& in, const Doubles& dy) {
                    const size_t pixels = in[0].size();
                    return std::vector<Doubles>{
                        Doubles(pixels, dy[0] / static_cast<double>(pixels))};
                  }});
}

TEST(LongLoops, ThatTheDriverEndsAreRefused) {
  for (const gpu::KernelFamily family : families()) {
    gpu::DeviceOptions device = device_options(family);
    device.lowered.max_iterations = 100;
    Emission on(device);
    ops::Emitter& emit = on.emit;
    emit.set_label("head");
    const auto text_of = [&](const char* name, const std::vector<Shape>& inputs,
                             const Json& given = Json::object(), bool backward = false) {
      const ops::OpSpec& op = ops::find_op(name);
      const Options options(op.options, name, given);
      ops::OpCall call{options};
      for (const Shape& x : inputs) {
        call.inputs.push_back(emit.scratch(x));
        call.input_grads.push_back(emit.scratch(x));
      }
      const ops::OpShapes shapes = op.shapes(options, inputs);
      call.output = call.output_grad = emit.scratch(shapes.output);
      for (const Shape& saved : shapes.saved) call.saved.push_back(emit.scratch(saved));
      return error_text([&] { (backward ? op.backward : op.forward)(call, emit); });
    };
    const std::string product = text_of("dense", {{8, 10'000}, {10'000, 8}});
    const bool on_cpu = on.kernels.device()->family() == gpu::KernelFamily::cpu;
    for (const char* part :
         {"head", on_cpu ? "2500 iterations" : " iterations", "ends loops after 100", "Mesa 25"})
      EXPECT_NE(product.find(part), std::string::npos) << product;
    EXPECT_NE(text_of("global_avg_pool", {{1, 100, 100, 1}}), "");
    EXPECT_NE(text_of("softmax", {{1, 100'000}}), "");
    EXPECT_EQ(text_of("dense", {{8, 80}, {80, 8}}), "");
    const Json depthwise{{"groups", 2}};  // each pixel of a line takes 2 + 1 * (2 + 1) iterations
    EXPECT_EQ(text_of("conv2d", {{1, 1, 20, 2}, {1, 1, 1, 2}}, depthwise), "");
    EXPECT_NE(text_of("conv2d", {{1, 1, 21, 2}, {1, 1, 1, 2}}, depthwise), "");
    const Json whole{{"output_size", 1}};  // 2 + 8 * (2 + 8) iterations, backward 20 * (2 + 3)
    EXPECT_EQ(text_of("avg_pool", {{1, 8, 8, 1}}, whole), "");
    EXPECT_NE(text_of("avg_pool", {{1, 9, 9, 1}}, whole), "");
    EXPECT_EQ(text_of("avg_pool", {{1, 20, 20, 1}}, whole, true), "");
    EXPECT_NE(text_of("avg_pool", {{1, 21, 21, 1}}, whole, true), "");
    const Json rows{{"function", "max"}, {"axes", {1}}};
    EXPECT_NE(text_of("reduce", {{1, 99, 2}}, rows), "");
    EXPECT_EQ(text_of("reduce", {{1, 98, 2}}, rows), "");
    // Each anchor goes over all boxes and all classes two times, and three backward.
    const auto detector = [](int64_t classes, int64_t boxes) {
      return std::vector<Shape>{{1, 4, classes + 8}, {1, boxes, 5}};
    };
    EXPECT_EQ(text_of("box_match", detector(2, 48)), "");
    EXPECT_NE(text_of("box_match", detector(2, 49)), "");
    const auto loss = [&](int64_t classes, bool backward = false) {
      std::vector<Shape> inputs = detector(classes, 1);
      inputs.push_back({1, 4});
      return text_of("multibox_loss", inputs, Json::object(), backward);
    };
    EXPECT_EQ(loss(49), "");
    EXPECT_NE(loss(50), "");
    EXPECT_EQ(loss(30, true), "");
    EXPECT_NE(loss(31, true), "");
  }
}

// Of a device of its own that does not compare with the host, which would take minutes.
gpu::DeviceOptions fast_options(gpu::KernelFamily family = gpu::KernelFamily::automatic) {
  gpu::DeviceOptions options = device_options(family);
  options.compare = gpu::Compare::nothing;
  return options;
}

// The product of ones.
std::vector<float> product_of_ones(const gpu::DeviceOptions& device, ops::GemmMode mode,
                                   const ops::GemmParams& p,
                                   const ops::GemmKernel* kernel = nullptr) {
  Emission on(device);
  ops::Emitter& emit = on.emit;
  const auto ones = [&](int64_t count) { return on.filled({count}); };
  const ops::DeviceTensor a = ones(ops::elements_of_a(mode, p)), b = ones(int64_t{p.k} * p.n);
  const ops::DeviceTensor c = emit.scratch({ops::elements_of_c(mode, p)});
  if (kernel)
    ops::emit_with(emit, *kernel, mode, p, a, b, {}, c, 0);
  else
    ops::emit_gemm(emit, mode, p, a, b, {}, c);
  gpu::run_once(on.kernels.device(), on.commands);
  const Tensor out = graph::download(on.kernels.device(), c);
  return {out.view<float>().begin(), out.view<float>().end()};
}

// Of `lines` lines of `width` pixels, with a filter of one tap, or of three of which one is inside.
ops::GemmParams gradient_of_lines(ops::GemmMode mode, uint32_t lines, uint32_t width, uint32_t c,
                                  uint32_t n) {
  ops::GemmParams p = ops::product(c, n, lines * width);
  p.batch = lines, p.w = p.ow = width, p.c = p.kc = c;
  if (mode == ops::GemmMode::line_dw) p.kw = 3, p.pad_x = 1;
  return p;
}

// Each line takes an iteration of its own, and so does the end of the loop over its pixels. There
// are so many tiles that products are split for the iterations alone.
TEST(LongLoops, OfProductsAreSplit) {
  using ops::GemmMode;
  for (const gpu::KernelFamily family : families())
    for (const GemmMode mode : {GemmMode::tn, GemmMode::conv_dw, GemmMode::line_dw}) {
      const ops::GemmParams p = mode == GemmMode::tn ? ops::product(1024, 16, 10'000)
                                                     : gradient_of_lines(mode, 30'000, 1, 512, 16);
      const auto all = ops::kernels_for(*device(family), mode, p, ops::Precision::fp32);
      if (all.empty()) continue;  // along lines: only on CPUs
      gpu::DeviceOptions options = fast_options(family);
      if (mode == GemmMode::tn) options.lowered.max_iterations = 1000;
      const std::vector<float> c = product_of_ones(options, mode, p);
      const size_t first = mode == GemmMode::line_dw ? c.size() / 3 : 0;  // the tap in the middle
      for (size_t i = 0; i < size_t{p.m} * p.n; ++i)
        ASSERT_EQ(c[first + i], static_cast<float>(p.k)) << family_name(family) << " " << i;
    }
}

// The gradient of a convolution's weights.
TEST(LongLoops, OfALargeBatchAreSplit) {
  if (device()->family() != gpu::KernelFamily::cpu) return;  // others take long for nothing
  const ops::ConvGeometry g{.batch = 900,
                            .h = 16,
                            .w = 16,
                            .c = 64,
                            .oh = 16,
                            .ow = 16,
                            .filters = 128,
                            .kh = 3,
                            .kw = 3,
                            .stride = 1,
                            .pad_y = 1,
                            .pad_x = 1,
                            .dilation = 1,
                            .groups = 1};
  Emission on(fast_options());
  ops::Emitter& emit = on.emit;
  const auto ones = [&](const Shape& shape) { return on.filled(shape); };
  const ops::DeviceTensor dw = emit.scratch({3, 3, 64, 128});
  ops::emit_conv_dw(emit, g, ones({900, 16, 16, 64}), ones({900, 16, 16, 128}), dw);
  gpu::run_once(on.kernels.device(), on.commands);
  const Tensor out = graph::download(on.kernels.device(), dw);
  for (size_t tap = 0; tap < 9; ++tap) {
    const int across = tap % 3 == 1 ? 16 : 15, down = tap / 3 == 1 ? 16 : 15;
    for (size_t i = 0; i < 64 * 128; ++i)
      ASSERT_EQ(out.view<float>()[tap * 64 * 128 + i], static_cast<float>(900 * across * down))
          << tap;
  }
}

// The gradient of a depthwise convolution's weights.
TEST(LongLoops, OfManyLinesOfChannelsAreSplit) {
  constexpr uint32_t kBatch = 1024, kSide = 64;
  const ops::ConvGeometry g{.batch = kBatch,
                            .h = kSide,
                            .w = kSide,
                            .c = 2,
                            .oh = kSide,
                            .ow = kSide,
                            .filters = 2,
                            .kh = 1,
                            .kw = 1,
                            .stride = 1,
                            .pad_y = 0,
                            .pad_x = 0,
                            .dilation = 1,
                            .groups = 2};
  Emission on(fast_options());
  ops::Emitter& emit = on.emit;
  const ops::DeviceTensor x = on.filled({kBatch, kSide, kSide, 2}), dw = emit.scratch({1, 1, 1, 2});
  ops::emit_conv_dw(emit, g, x, x, dw);
  gpu::run_once(on.kernels.device(), on.commands);
  const Tensor out = graph::download(on.kernels.device(), dw);
  EXPECT_EQ(out.view<float>()[0], static_cast<float>(kBatch * kSide * kSide));
}

// Of each mode the longest product that a kernel does in one slice: as the driver counts.
TEST(LongLoops, OfProductsAreCounted) {
  using ops::GemmMode;
  const uint32_t limit = device()->info().max_iterations;
  if (limit == 0) return;  // this driver does not end loops
  const auto problem = [](GemmMode mode, uint32_t length) {
    if (mode == GemmMode::nn || mode == GemmMode::tn) return ops::product(8, 16, length);
    if (mode == GemmMode::conv_dw || mode == GemmMode::line_dw)
      return gradient_of_lines(mode, length, 4, 8, 16);
    ops::GemmParams p = ops::product(1, 16, length * 2 * 8);  // of one pixel by 2 * length taps
    p.kh = length, p.kw = 2, p.c = p.kc = 8;
    (mode == GemmMode::conv ? p.h : p.oh) = length, (mode == GemmMode::conv ? p.w : p.ow) = 2;
    if (mode == GemmMode::conv_dx) p.pad_y = length - 1, p.pad_x = 1;
    return p;
  };
  for (const GemmMode mode : {GemmMode::nn, GemmMode::tn, GemmMode::conv, GemmMode::conv_dx,
                              GemmMode::conv_dw, GemmMode::line_dw}) {
    const auto all = ops::kernels_for(*device(), mode, problem(mode, 16), ops::Precision::fp32);
    if (all.empty()) continue;  // along lines: only on CPUs
    ops::GemmKernel kernel = all[0];
    kernel.slices = 1;
    uint32_t longest = 16;
    for (uint32_t step = 1 << 20; step > 0; step /= 2)
      if (ops::iterations_of(kernel, mode, problem(mode, longest + step)) <= limit) longest += step;
    const ops::GemmParams p = problem(mode, longest);
    const std::vector<float> c = product_of_ones(fast_options(), mode, p, &kernel);
    EXPECT_EQ(*std::max_element(c.begin(), c.end()), static_cast<float>(p.k))
        << kernel.name() << " " << longest;
  }
}

// More samples than workgroups along an axis.
constexpr int64_t kManySamples = 65'600;

TEST(GridLimits, ReducesManySlices) {
  constexpr size_t kInner = 3;
  for (const bool maximum : {false, true}) {
    const auto pair = [](size_t i) {
      return std::pair(i / kInner * 2 * kInner + i % kInner,
                       i / kInner * 2 * kInner + i % kInner + kInner);
    };
    check_op({.op = "reduce",
              .options = maximum ? R"({"function": "max", "axes": [1]})"
                                 : R"({"function": "mean", "axes": [1]})",
              .inputs = {{kManySamples, 2, kInner}},
              .reference =
                  [&](const auto& in) {
                    Doubles y(in[0].size() / 2);
                    for (size_t i = 0; i < y.size(); ++i) {
                      const double a = in[0][pair(i).first], b = in[0][pair(i).second];
                      y[i] = maximum ? std::max(a, b) : (a + b) / 2;
                    }
                    return y;
                  },
              .gradients =
                  [&](const auto& in, const Doubles& dy) {
                    Doubles dx(in[0].size());
                    for (size_t i = 0; i < dy.size(); ++i) {
                      const auto [a, b] = pair(i);
                      const bool ties = !maximum || in[0][a] == in[0][b];
                      const double share = ties ? 0.5 : in[0][a] > in[0][b] ? 1 : 0;
                      dx[a] = share * dy[i], dx[b] = (1 - share) * dy[i];
                    }
                    return std::vector<Doubles>{dx};
                  }});
  }
}

// With one position, attention passes on its value.
TEST(GridLimits, AttendsInManySamples) {
  constexpr size_t kHeads = 8, kWidth = kHeads * 4;
  check_op({.op = "attention",
            .options = R"({"heads": 8})",
            .inputs = {{kManySamples / kHeads, 1, 3 * kWidth}},
            .reference =
                [](const auto& in) {
                  Doubles y;
                  for (size_t i = 0; i < in[0].size(); ++i)
                    if (i % (3 * kWidth) >= 2 * kWidth) y.push_back(in[0][i]);
                  return y;
                },
            .gradients =
                [](const auto& in, const Doubles& dy) {
                  Doubles dx(in[0].size());
                  for (size_t i = 0; i < dy.size(); ++i)
                    dx[i / kWidth * 3 * kWidth + 2 * kWidth + i % kWidth] = dy[i];
                  return std::vector<Doubles>{dx};
                }});
}

TEST(GridLimits, PoolsManySamples) {
  for (const auto& [op, options] :
       {std::pair("global_avg_pool", "{}"), {"avg_pool", R"({"window": 2})"}})
    check_op({.op = op,
              .options = options,
              .inputs = {{kManySamples, 2, 2, 1}},
              .reference =
                  [](const auto& in) {
                    Doubles y(in[0].size() / 4);
                    for (size_t i = 0; i < in[0].size(); ++i) y[i / 4] += in[0][i] / 4;
                    return y;
                  },
              .gradients =
                  [](const auto& in, const Doubles& dy) {
                    Doubles dx(in[0].size());
                    for (size_t i = 0; i < dx.size(); ++i) dx[i] = dy[i / 4] / 4;
                    return std::vector<Doubles>{dx};
                  }});
}

TEST(GridLimits, ConvolvesChannelsOfManySamples) {
  check_op({.op = "conv2d",
            .options = R"({"groups": 2})",
            .inputs = {{kManySamples, 1, 1, 2}, {1, 1, 1, 2}},
            .reference =
                [](const auto& in) {
                  Doubles y = in[0];
                  for (size_t i = 0; i < y.size(); ++i) y[i] *= in[1][i % 2];
                  return y;
                },
            .gradient_tolerance = 1e-3,
            .gradients =
                [](const auto& in, const Doubles& dy) {
                  Doubles dx = dy, dw(2);
                  for (size_t i = 0; i < dy.size(); ++i)
                    dx[i] *= in[1][i % 2], dw[i % 2] += dy[i] * in[0][i];
                  return std::vector<Doubles>{dx, dw};
                }});
}

TEST(GridLimits, NormalizesGroupsOfManySamples) {
  const auto normal = [](const Doubles& x, size_t i) {  // a group is a pair
    const double half = (x[i] - x[i ^ 1]) / 2;
    return half / std::sqrt(half * half + 1e-2);
  };
  check_op({.op = "group_norm",
            .options = R"({"groups": 1, "epsilon": 1e-2})",
            .inputs = {{kManySamples, 2}, {2}, {2}},
            .reference =
                [&](const auto& in) {
                  Doubles y(in[0].size());
                  for (size_t i = 0; i < y.size(); ++i)
                    y[i] = in[1][i % 2] * normal(in[0], i) + in[2][i % 2];
                  return y;
                },
            .tolerance = 1e-4,
            .gradient_tolerance = 1e-3,
            .gradients =
                [&](const auto& in, const Doubles& dy) {
                  Doubles dx(dy.size()), dgamma(2), dbeta(2);
                  for (size_t i = 0; i < dy.size(); ++i) {
                    const double half = (in[0][i] - in[0][i ^ 1]) / 2;
                    const double slope = 0.5 * 1e-2 / std::pow(half * half + 1e-2, 1.5);
                    dx[i] = slope * (in[1][i % 2] * dy[i] - in[1][1 - i % 2] * dy[i ^ 1]);
                    dgamma[i % 2] += dy[i] * normal(in[0], i), dbeta[i % 2] += dy[i];
                  }
                  return std::vector<Doubles>{dx, dgamma, dbeta};
                }});
}

}  // namespace
}  // namespace etr::test
