// NaN in an input of an op, or in a bias, is NaN in every result that depends on it: it is never
// taken for a number.
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>

#include "core/rng.h"
#include "gpu/run_once.h"
#include "graph/parameters.h"
#include "ops/conv.h"
#include "ops/gemm_kernels.h"
#include "support/op_check.h"

namespace etr::test {
namespace {

using Floats = std::vector<float>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Case {
  std::string op, options;
  std::vector<Shape> inputs;
  bool training = false;
  int classes = 1;                                        // integers count from 0 to below it
  size_t poisoned = SIZE_MAX;                             // inputs that get a NaN
  std::function<void(std::vector<Floats>&)> adjust = {};  // makes random inputs valid ones
};

// A group of one rank.
struct NoPeers : ops::SlicePeers {
  void emit_sum(ops::Emitter&, const gpu::Buffer&) override {}
};

Tensor tensor_of(const Floats& values, const Shape& shape) {
  Tensor out(DType::f32, shape);
  std::copy(values.begin(), values.end(), out.mutable_view<float>().begin());
  return out;
}

// An op with its buffers, computed again for other inputs.
class Computed {
 public:
  Computed(const Case& c, gpu::KernelFamily family)
      : op_(ops::find_op(c.op)),
        options_(op_.options, c.op, parse_json(c.options, c.op)),
        kernels_(kernels(family)),
        arena_(kernels_.device(), gpu::MemoryUse::device),
        emit_(kernels_, arena_, commands_),
        call_{options_, 3, c.training, {}, {}, {}, {}, {}, {}} {
    const ops::OpShapes shapes = op_.shapes(options_, c.inputs);
    for (const Shape& shape : c.inputs) call_.inputs.push_back(emit_.scratch(shape));
    for (const Shape& shape : shapes.saved) call_.saved.push_back(emit_.scratch(shape));
    call_.output = emit_.scratch(shapes.output);
    Tensor step(DType::i32, {sizeof(ops::StepValues) / sizeof(int32_t)});
    const ops::StepValues values{.valid_rows = 1u << 30};
    std::memcpy(step.mutable_data(), &values, sizeof values);
    const ops::DeviceTensor on_device = emit_.scratch(step.shape());
    graph::upload(kernels_.device(), step, on_device);
    call_.step = on_device.buffer;
    emit_.set_peers({.slices = &peers_});
    op_.forward(call_, emit_);
  }

  Floats operator()(const std::vector<Floats>& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i)
      graph::upload(kernels_.device(), tensor_of(inputs[i], call_.inputs[i].shape),
                    call_.inputs[i]);
    gpu::run_once(kernels_.device(), commands_);
    const Tensor y = graph::download(kernels_.device(), call_.output);
    return {y.view<float>().begin(), y.view<float>().end()};
  }

 private:
  const ops::OpSpec& op_;
  const Options options_;
  gpu::Kernels& kernels_;
  gpu::Arena arena_;
  gpu::CommandList commands_;
  NoPeers peers_;
  ops::Emitter emit_;
  ops::OpCall call_;
};

bool is_integer(const Case& c, size_t input) {
  return ops::find_op(c.op).inputs[input].dtype == DType::i32;
}

std::vector<Floats> random_inputs(const Case& c) {
  Rng rng(7);
  std::vector<Floats> out;
  for (const Shape& shape : c.inputs) {
    Floats& values = out.emplace_back(static_cast<size_t>(element_count(shape)));
    for (float& v : values) v = rng.uniform(0.1f, 1.0f);
    for (size_t i = 0; i < values.size() && is_integer(c, out.size() - 1); ++i)
      values[i] = std::bit_cast<float>(static_cast<int>(i) % c.classes);
  }
  if (c.adjust) c.adjust(out);
  return out;
}

// Which results change when this element does. Numbers far apart, so that one of them shows behind
// a ReLU or a maximum.
std::vector<bool> dependents(Computed& op, std::vector<Floats> inputs, size_t input,
                             size_t element) {
  const Floats usual = op(inputs);
  std::vector<bool> out(usual.size());
  for (const float other : {-30.0f, 30.0f}) {
    inputs[input][element] = other;
    const Floats now = op(inputs);
    for (size_t i = 0; i < out.size(); ++i)
      if (std::bit_cast<uint32_t>(now[i]) != std::bit_cast<uint32_t>(usual[i])) out[i] = true;
  }
  return out;
}

void expect_nan_stays(const Case& c, gpu::KernelFamily family) {
  Computed op(c, family);
  const std::vector<Floats> inputs = random_inputs(c);
  for (size_t input = 0; input < std::min(inputs.size(), c.poisoned); ++input) {
    if (is_integer(c, input)) continue;
    const bool is_state = ops::find_op(c.op).inputs[input].role == ops::InputRole::state;
    if (is_state && c.training) continue;  // it is written
    for (const size_t element : {size_t{0}, inputs[input].size() / 2, inputs[input].size() - 1}) {
      const std::vector<bool> depends = dependents(op, inputs, input, element);
      ASSERT_NE(std::count(depends.begin(), depends.end(), true), 0)
          << c.op << ": nothing depends on element " << element << " of input " << input;
      for (const float nan : {kNaN, -kNaN}) {  // x86 makes negative ones
        std::vector<Floats> poisoned = inputs;
        poisoned[input][element] = nan;
        const Floats y = op(poisoned);
        for (size_t i = 0; i < y.size(); ++i)
          ASSERT_TRUE(!depends[i] || std::isnan(y[i]))
                << c.op << " " << c.options << " on the " << family_name(family) << " family: NaN as element "
                << element << " of input " << input << " gives " << y[i] << " as element " << i;
      }
    }
  }
}

std::string with(const char* key, const std::string& value) {
  return cat("{\"", key, "\": \"", value, "\"}");
}

std::vector<Case> activations() {
  std::vector<Case> out;
  for (const char* function : {
#define ETR_UNARY(name) #name,
#include "ops/unary_list.inc"
#undef ETR_UNARY
       })
    out.push_back({"unary", with("function", function), {{13, 7}}});
  for (const char* function : {"add", "subtract", "multiply", "divide", "maximum", "minimum"})
    for (const char* relu : {"true", "false"})
      for (const Shape& b : {Shape{13, 7}, Shape{7}})
        out.push_back({"binary", cat("{\"function\": \"", function, "\", \"relu\": ", relu, "}"), {{13, 7}, b}});
  for (const char* function : {"mean", "max", "min"})
    for (const char* axes : {"[1]", "[2]", "[1, 2]"})
      out.push_back({"reduce", cat("{\"function\": \"", function, "\", \"axes\": ", axes, "}"), {{3, 35, 67}}});
  return out;
}

std::vector<Case> pools_and_norms() {
  std::vector<Case> out;
  for (const char* window : {"2, \"stride\": 2", "3, \"stride\": 2, \"pad\": 1", "3, \"stride\": 1"})
    for (const char* pool : {"max_pool", "avg_pool"})
      out.push_back({pool, cat("{\"window\": ", window, "}"), {{2, 8, 8, 5}}});
  out.push_back({"avg_pool", "{\"output_size\": 3}", {{2, 8, 8, 5}}});
  out.push_back({"global_avg_pool", "{}", {{2, 8, 8, 5}}});
  for (const char* relu : {"true", "false"})
    for (const bool training : {true, false})
      out.push_back({"batch_norm", cat("{\"relu\": ", relu, "}"), {{13, 7}, {7}, {7}, {7}, {7}}, training});
  out.push_back({"layer_norm", "{}", {{5, 37}, {37}, {37}}});
  out.push_back({"group_norm", "{\"groups\": 2}", {{2, 3, 5, 6}, {6}, {6}}});
  out.push_back({"softmax", "{}", {{5, 37}}});
  out.push_back({"softmax", "{\"logarithm\": true}", {{5, 37}}});
  out.push_back({"dropout", "{\"rate\": 0.5}", {{5, 37}}});
  return out;
}

std::vector<Case> products() {
  std::vector<Case> out;
  const char* relu = "{\"relu\": true}";
  for (const int64_t rows : {1, 3, 33}) out.push_back({"dense", relu, {{rows, 13}, {13, 67}, {67}}});
  const auto conv = [&](const char* more, Shape x, Shape w) {
    const Shape b{w[3]};
    out.push_back({"conv2d", cat("{\"relu\": true", more, "}"), {std::move(x), std::move(w), b}});
  };
  conv(", \"pad\": 1", {2, 7, 5, 3}, {3, 3, 3, 5});
  conv(", \"pad\": 1", {1, 7, 8, 16}, {3, 3, 16, 16});
  conv(", \"pad\": 1", {2, 5, 6, 8}, {3, 3, 8, 67});
  conv(", \"stride\": 2, \"pad\": 1", {1, 8, 6, 4}, {3, 3, 4, 5});
  conv(", \"groups\": 11", {2, 7, 5, 11}, {3, 3, 1, 11});
  conv(", \"groups\": 5", {2, 7, 5, 15}, {3, 3, 3, 10});
  out.push_back({"attention", "{\"heads\": 2}", {{2, 5, 8}, {2, 5, 8}, {2, 5, 8}}});
  for (const char* cell : {"lstm", "gru"}) {
    const int64_t gates = std::string(cell) == "lstm" ? 12 : 9;
    out.push_back({"recurrent", with("cell", cell), {{2, 4, 5}, {5, gates}, {gates}, {3, gates}, {gates}}});
  }
  return out;
}

std::vector<Case> losses() {
  std::vector<Case> out;
  for (const char* loss : {"squared_error", "absolute_error", "huber", "binary_cross_entropy"})
    out.push_back({loss, "{}", {{5, 7}, {5, 7}}});
  out.push_back(
      {.op = "softmax_cross_entropy", .options = "{}", .inputs = {{5, 7}, {5}, {5}}, .classes = 7});
  out.push_back({.op = "label_weights", .options = "{}", .inputs = {{5}, {3}}, .classes = 3});
  out.push_back({"mean_rows", "{}", {{5, 7}}});
  out.push_back({"mean_rows", "{}", {{5, 7}, {5, 7}}});
  // Every anchor is to find its sample's only box.
  out.push_back({.op = "multibox_loss",
                 .options = "{}",
                 .inputs = {{2, 3, 12}, {2, 1, 5}, {2, 3}},
                 .poisoned = 1,
                 .adjust = [](std::vector<Floats>& in) {
                   in[1] = {0, 0.1f, 0.2f, 0.6f, 0.7f, 1, 0.3f, 0.1f, 0.9f, 0.4f};
                   in[2] = Floats(6, 1.0f);
                 }});
  return out;
}

std::vector<Case> moves() {
  std::vector<Case> out;
  out.push_back({"bias", "{}", {{13, 7}, {7}}});
  out.push_back({"concat", "{\"axis\": 1}", {{3, 5, 2}, {3, 4, 2}}});
  out.push_back({"conv2d_transpose", "{\"stride\": 2}", {{2, 3, 5, 4}, {3, 3, 6, 4}}});
  out.push_back({.op = "embedding", .options = "{}", .inputs = {{7, 5}, {2, 9}}, .classes = 7});
  out.push_back({"enter_slices", "{}", {{5, 7}}});
  out.push_back({.op = "gather", .options = "{}", .inputs = {{2, 4, 3}, {2, 5}}, .classes = 4});
  out.push_back({"glsl",
                 with("source", "float forward(uint i) { return x0[i] + x1[i % 7]; }"),
                 {{5, 7}, {7}}});
  out.push_back({"leave_slices", "{}", {{5, 7}}});
  out.push_back({"permute", "{\"axes\": [0, 2, 1]}", {{3, 5, 7}}});
  out.push_back({"rotary", "{\"heads\": 2}", {{2, 5, 8}, {5, 4}}});
  out.push_back({"slice", "{\"axis\": 1, \"length\": 5}", {{3, 5, 7}}});
  return out;
}

void expect_nan_stays(const std::vector<Case>& cases) {
  for (const gpu::KernelFamily family : families())
    for (const Case& c : cases) expect_nan_stays(c, family);
}

TEST(NaN, StaysInFunctionsOfElements) { expect_nan_stays(activations()); }
TEST(NaN, StaysInPoolsAndNormalisations) { expect_nan_stays(pools_and_norms()); }
TEST(NaN, StaysInProductsAndCells) { expect_nan_stays(products()); }
TEST(NaN, StaysInLosses) { expect_nan_stays(losses()); }
TEST(NaN, StaysInWhatIsMoved) { expect_nan_stays(moves()); }

TEST(NaN, IsTriedInEveryOp) {
  std::set<std::string> tried{
      "accuracy",   // whose result says which logit is the largest
      "box_match",  // whose results are numbers of boxes
  };
  for (const auto& cases : {activations(), pools_and_norms(), products(), losses(), moves()})
    for (const Case& c : cases) tried.insert(c.op);
  for (const ops::OpSpec* op : ops::op_table())
    EXPECT_TRUE(op->view || tried.contains(op->name)) << op->name << " has no case in this file";
}

// Tensors on the device, and commands that compute with them.
struct Computation {
  explicit Computation(gpu::KernelFamily family)
      : k(kernels(family)), arena(k.device(), gpu::MemoryUse::device), emit(k, arena, commands) {}

  ops::DeviceTensor holding(const Shape& shape, const Floats& values) {
    const ops::DeviceTensor out = emit.scratch(shape);
    graph::upload(k.device(), tensor_of(values, shape), out);
    return out;
  }
  ops::DeviceTensor filled(const Shape& shape, float value) {
    return holding(shape, Floats(static_cast<size_t>(element_count(shape)), value));
  }
  Tensor run(const ops::DeviceTensor& result) {
    gpu::run_once(k.device(), commands);
    return graph::download(k.device(), result);
  }

  gpu::Kernels& k;
  gpu::Arena arena;
  gpu::CommandList commands;
  ops::Emitter emit;
};

// Of every kernel of products: ReLU follows the bias, of which one column is NaN.
void expect_nan_stays(const ops::GemmKernel& kernel, ops::GemmMode mode, ops::GemmParams p,
                      gpu::KernelFamily family) {
  Computation on(family);
  Floats bias(p.n, -2.0f);
  for (uint32_t column = 0; column < p.n; column += 3) bias[column] = column % 2 ? kNaN : -kNaN;
  const ops::DeviceTensor c = on.emit.scratch({ops::elements_of_c(mode, p)});
  p.epilogue = ops::GemmParams::kBias | ops::GemmParams::kRelu;
  emit_with(on.emit, kernel, mode, p, on.filled({ops::elements_of_a(mode, p)}, 0.0f),
            on.filled({4 * p.k, p.n}, 1.0f), on.holding({p.n}, bias), c, 0);
  const Tensor got = on.run(c);
  for (size_t i = 0; i < got.view<float>().size(); ++i)
    if (i % p.n % 3 == 0)
      ASSERT_TRUE(std::isnan(got.view<float>()[i])) << kernel.name() << " at " << i;
    else
      ASSERT_EQ(got.view<float>()[i], 0.0f) << kernel.name() << " at " << i;
}

TEST(NaN, StaysInEveryKernelOfProducts) {
  ops::GemmParams conv;
  conv.h = conv.w = conv.oh = conv.ow = 6;
  conv.kh = conv.kw = 3;
  conv.pad_y = conv.pad_x = 1;
  conv.c = conv.kc = 8;
  conv.m = 36, conv.n = 19, conv.k = 72;
  std::set<std::string> seen;
  for (const gpu::KernelFamily family : families())
    for (const auto precision : {ops::Precision::fp32, ops::Precision::bf16, ops::Precision::fp16})
      for (const auto& [mode, p] :
           {std::pair{ops::GemmMode::nn, ops::product(37, 19, 24)},
            std::pair{ops::GemmMode::nn, ops::product(3, 19, 7)},
            std::pair{ops::GemmMode::conv, conv}, std::pair{ops::GemmMode::line, conv}})
        for (ops::GemmKernel kernel : ops::kernels_for(*device(family), mode, p, precision)) {
          ops::GemmParams of_kernel = p;
          if (mode == ops::GemmMode::line)
            of_kernel.m = ops::rows_of_lines(kernel, p), of_kernel.k = 4 * 3 * p.c;
          kernel.slices = 1;
          if (!seen.insert(family_name(family) + kernel.name()).second) continue;
          expect_nan_stays(kernel, mode, of_kernel, family);
          if (HasFatalFailure()) return;
        }
}

// Kernels pack rounded operands in pairs. The NaN is the one with all bits set, whose rounding
// would carry into the sign.
void expect_nan_in_its_column(const ops::GemmKernel& kernel, const ops::GemmParams& p,
                              gpu::KernelFamily family) {
  Computation on(family);
  Floats b(size_t{p.k} * p.n, 1.0f);
  b[2 * p.n + 5] = std::bit_cast<float>(0x7FFFFFFFu);
  b[3 * p.n + 8] = std::bit_cast<float>(0xFFFFFFFFu);
  b[4 * p.n + 11] = HUGE_VALF;
  const ops::DeviceTensor c = on.emit.scratch({p.m, p.n});
  emit_with(on.emit, kernel, ops::GemmMode::nn, p, on.filled({p.m, p.k}, 1.0f),
            on.holding({p.k, p.n}, b), {}, c, 0);
  const Tensor got = on.run(c);
  for (size_t i = 0; i < got.view<float>().size(); ++i) {
    const size_t column = i % p.n;
    const float v = got.view<float>()[i];
    if (column == 5 || column == 8)
      ASSERT_TRUE(std::isnan(v)) << kernel.name() << " at " << i;
    else if (column == 11)
      ASSERT_FALSE(std::isfinite(v)) << kernel.name() << " at " << i;
    else
      ASSERT_EQ(v, static_cast<float>(p.k)) << kernel.name() << " at " << i;
  }
}

TEST(NaN, StaysInItsColumnOfAProduct) {
  const ops::GemmParams p = ops::product(37, 24, 24);
  std::set<std::string> seen;
  for (const gpu::KernelFamily family : families())
    for (const auto precision : {ops::Precision::fp32, ops::Precision::bf16, ops::Precision::fp16})
      for (ops::GemmKernel kernel :
           ops::kernels_for(*device(family), ops::GemmMode::nn, p, precision)) {
        kernel.slices = 1;
        if (!seen.insert(family_name(family) + kernel.name()).second) continue;
        expect_nan_in_its_column(kernel, p, family);
        if (HasFatalFailure()) return;
      }
}

TEST(NaN, StaysInWinograd) {
  for (const gpu::KernelFamily family : families()) {
    Computation on(family);
    Floats x(6 * 6 * 5, 1.0f);
    x[0] = kNaN;
    const ops::ConvGeometry g{1, 6, 6, 5, 6, 6, 9, 3, 3, 1, 1, 1, 1, 1};
    const ops::DeviceTensor y = on.emit.scratch({1, 6, 6, 9});
    emit_winograd(on.emit, g, on.holding({1, 6, 6, 5}, x), on.filled({3, 3, 5, 9}, -1), false,
                  on.filled({9}, 0), /*relu=*/true, y);
    const Tensor got = on.run(y);
    for (size_t pixel = 0; pixel < 36; ++pixel)
      for (size_t f = 0; f < 9; ++f) {
        const float v = got.view<float>()[pixel * 9 + f];
        const bool sees_it = pixel % 6 < 2 && pixel / 6 < 2,
                   is_far = pixel % 6 >= 4 || pixel / 6 >= 4;
        EXPECT_TRUE(!sees_it || std::isnan(v)) << family_name(family) << pixel;
        EXPECT_TRUE(!is_far || v == 0.0f) << family_name(family) << pixel;
      }
  }
}

}  // namespace
}  // namespace etr::test
