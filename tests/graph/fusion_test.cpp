#include "graph/fusion.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/json.h"
#include "core/rng.h"
#include "gpu/run_once.h"
#include "graph/plan.h"
#include "support/device.h"
#include "support/sanitized.h"

namespace etr::test {
namespace {

using namespace graph;

Initializer ramp(float scale, float shift) {
  return [=](std::span<float> out, Rng&) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = scale * (static_cast<float>(i % 7) - 3) + shift;
  };
}

constexpr int64_t kBatch = 2, kHeight = 6, kWidth = 4;

// Values of one shape [2, 6, 4, channels], made of each other; a loss over the last.
struct Net {
  explicit Net(int64_t of_channels) : channels(of_channels) {
    x = g.add_input("x", shape(), DType::f32);
    t = g.add_input("t", {kBatch, kHeight * kWidth * channels}, DType::f32);
  }
  Shape shape() const { return {kBatch, kHeight, kWidth, channels}; }
  std::string name(const char* what) { return cat(what, g.nodes().size()); }

  ValueId unary(const char* function, ValueId a) {
    return g.add("unary", {{"function", function}}, {a}, name("u"));
  }
  ValueId binary(const char* function, ValueId a, ValueId b, bool relu = false) {
    return g.add("binary", {{"function", function}, {"relu", relu}}, {a, b}, name("b"));
  }
  ValueId conv(ValueId a, bool relu = false, bool bias = true) {
    const std::string at = name("c");
    std::vector<ValueId> inputs{
        a, g.add_parameter(at + ".w", {3, 3, channels, channels}, true, ramp(0.03f, 0.01f))};
    if (bias) inputs.push_back(g.add_parameter(at + ".b", {channels}, false, ramp(0.1f, 0)));
    return g.add("conv2d", {{"pad", 1}, {"relu", relu}}, inputs, at);
  }
  ValueId norm(ValueId a, bool relu = false) {
    const std::string at = name("n");
    const Shape c{g.shape(a).back()};
    return g.add(
        "batch_norm", {{"relu", relu}},
        {a, g.add_parameter(at + ".gamma", c, false, ramp(0.1f, 1)),
         g.add_parameter(at + ".beta", c, false, ramp(0.1f, 0)),
         g.add_state(at + ".mean", c, ramp(0, 0)), g.add_state(at + ".var", c, ramp(0, 1))},
        at);
  }
  ValueId parameter(Shape of) { return g.add_parameter(name("p"), of, true, ramp(0.2f, 0.7f)); }

  void finish(ValueId last) {
    const ValueId flat = g.add("flatten", Json::object(), {last}, "flat");
    const ValueId rows = g.add("squared_error", Json::object(), {flat, t}, "rows");
    loss = g.add("mean_rows", Json::object(), {rows}, "loss");
  }

  Graph g;
  int64_t channels;
  ValueId x, t, loss = -1;
};

std::vector<std::string> kernels_of(const Plan& plan) {
  std::vector<std::string> out;
  for (const gpu::Command& command : plan.commands())
    if (const auto* dispatch = std::get_if<gpu::Dispatch>(&command))
      out.push_back(gpu::kernel_name(*dispatch->kernel));
  return out;
}

bool has(const Plan& plan, const std::string& kernel) {
  const auto all = kernels_of(plan);
  return std::find(all.begin(), all.end(), kernel) != all.end();
}

struct Results {
  std::vector<Tensor> tensors;  // outputs, then gradients and states
  std::vector<bool> is_gradient;
  size_t dispatches;
};

Results run(const Net& net, gpu::KernelFamily family, const PlanOptions& options) {
  const gpu::DevicePtr& d = device(family);
  ParameterStore store(d, net.g, 1);
  const Plan plan(kernels(family), net.g, store, options);
  Tensor x(DType::f32, net.shape()), t(DType::f32, net.g.shape(net.t)),
      step(DType::i32, {sizeof(ops::StepValues) / 4});
  for (size_t i = 0; i < x.view<float>().size(); ++i) {
    x.mutable_view<float>()[i] = static_cast<float>((i * 37) % 19) * 0.11f - 1;
    t.mutable_view<float>()[i] = static_cast<float>((i * 13) % 5) * 0.2f;
  }
  for (int32_t& v : step.mutable_view<int32_t>()) v = kBatch;
  upload(d, x, plan.tensor(net.x));
  upload(d, t, plan.tensor(net.t));
  upload(d, step, {plan.step_values(), step.shape()});
  gpu::run_once(d, plan.commands());
  Results out{{}, {}, plan.commands().size()};
  const auto keep = [&](const ops::DeviceTensor& tensor, bool is_gradient) {
    out.tensors.push_back(download(d, tensor));
    out.is_gradient.push_back(is_gradient);
  };
  for (const ValueId id : options.outputs) keep(plan.tensor(id), false);
  for (const Value& value : net.g.values()) {
    if (value.kind == ValueKind::parameter && options.training)
      keep(store.gradient(value.name), true);
    if (value.kind == ValueKind::state) keep(store.tensor(value.name), false);
  }
  return out;
}

float largest_of(const Tensor& tensor) {
  float largest = 0;
  for (const float value : tensor.view<float>()) largest = std::max(largest, std::abs(value));
  return largest;
}

// But for what compilers make of operations that meet in one kernel. Gradients can be sums whose
// terms cancel (that of a bias before a normalisation is 0): what is left has the rounding of the
// terms, which are of other gradients' size.
void expect_same(const Results& a, const Results& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  float largest_gradient = 0;
  for (size_t i = 0; i < a.tensors.size(); ++i)
    if (a.is_gradient[i]) largest_gradient = std::max(largest_gradient, largest_of(a.tensors[i]));
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const auto u = a.tensors[i].view<float>(), v = b.tensors[i].view<float>();
    const float terms = a.is_gradient[i] ? largest_gradient : 0;
    const float tolerance = 1e-5f * largest_of(a.tensors[i]) + 1e-6f * terms;
    for (size_t k = 0; k < u.size(); ++k) {
      ASSERT_TRUE(std::isfinite(u[k]));
      ASSERT_NEAR(u[k], v[k], tolerance) << "tensor " << i << " at " << k;
    }
  }
}

Results expect_fusing_changes_nothing(const Net& net, std::vector<ValueId> outputs,
                                      gpu::KernelFamily family) {
  PlanOptions options;
  options.training = true, options.loss = net.loss, options.outputs = std::move(outputs);
  const Results fused = run(net, family, options);
  options.fuse = false;
  const Results apart = run(net, family, options);
  expect_same(apart, fused);
  EXPECT_LE(fused.dispatches, apart.dispatches);
  return fused;
}

TEST(Fusion, AChainIsOneKernel) {
  for (const gpu::KernelFamily family : families()) {
    Net net(5);
    ValueId v = net.binary("multiply", net.x, net.parameter({5}));  // along the last axis
    v = net.unary("tanh", v);
    v = net.binary("add", v, net.parameter({1}));  // one number
    v = net.binary("maximum", v, net.x);
    PlanOptions options;
    options.outputs = {v};
    ParameterStore store(device(family), net.g, 1);
    const Plan plan(kernels(family), net.g, store, options);
    EXPECT_EQ(kernels_of(plan), std::vector<std::string>{"binary + unary + binary + binary"});
    const Results fused = run(net, family, options);
    options.fuse = false;
    const Results apart = run(net, family, options);
    EXPECT_EQ(apart.dispatches, 4u);
    expect_same(apart, fused);
  }
}

// Single operations that are large enough are compiled on CPU devices, which then take pairs.
TEST(Fusion, LargeOperationsAreCompiled) {
  constexpr int64_t kEnough = 1366;  // 65,568 elements
  for (const gpu::KernelFamily family : families())
    for (const int64_t channels : {kEnough, kEnough + 1, int64_t{5}}) {
      Net net(channels);
      const ValueId normal = net.norm(net.x, true), a = net.unary("gelu", normal),
                    b = net.unary("square", a);  // a has two gradients, which are added
      net.finish(net.binary("multiply", a, b));
      expect_fusing_changes_nothing(net, {normal, a, b}, family);
      PlanOptions options;
      options.outputs = {normal, a};
      ParameterStore store(device(family), net.g, 1);
      const Plan plan(kernels(family), net.g, store, options);
      const bool compiled = family == gpu::KernelFamily::cpu && channels >= kEnough;
      EXPECT_EQ(has(plan, "batch_norm"), compiled);  // its own kernel is batch_norm_apply
      EXPECT_EQ(has(plan, "batch_norm_apply"), !compiled);
    }
}

TEST(Fusion, WhatOthersWantIsStillWritten) {
  for (const gpu::KernelFamily family : families()) {
    Net net(16);
    const ValueId a = net.unary("square", net.x), b = net.unary("relu", a);
    PlanOptions options;
    options.outputs = {a, b};  // the caller reads both
    EXPECT_EQ(run(net, family, options).dispatches, 2u);
    options.outputs = {b};
    EXPECT_EQ(run(net, family, options).dispatches, 1u);
    // A costly function of which three things are made is not computed three times.
    Net other(16);
    const ValueId g = other.unary("gelu", other.x);
    const ValueId sum =
        other.binary("add", other.unary("exp", g), other.binary("add", other.unary("tanh", g), g));
    options.outputs = {sum};
    EXPECT_EQ(run(other, family, options).dispatches, 2u);
  }
}

// The block of a residual network: normalised branch and shortcut, the sum and its ReLU are one
// pass; on the way back the sum of gradients and the gradient after the ReLU belong to the
// convolution.
TEST(Fusion, AResidualBlockIsItsProducts) {
  for (const gpu::KernelFamily family : families()) {
    Net net(16);
    ValueId v = net.norm(net.conv(net.x, false, false), true);
    for (int block = 0; block < 2; ++block) {
      const ValueId branch =
          net.norm(net.conv(net.norm(net.conv(v, false, false), true), false, false));
      v = net.binary("add", branch, v, true);
    }
    net.finish(v);
    expect_fusing_changes_nothing(net, {net.loss}, family);
    PlanOptions options;
    options.training = true, options.loss = net.loss, options.outputs = {net.loss};
    ParameterStore store(device(family), net.g, 1);
    const Plan plan(kernels(family), net.g, store, options);
    EXPECT_TRUE(has(plan, "batch_norm + binary"));
    EXPECT_FALSE(has(plan, "add"));
    const auto all = kernels_of(plan);
    EXPECT_EQ(std::count(all.begin(), all.end(), "relu_grad"), 1) << "after the loss alone";
  }
}

// Without normalisation the sum and its ReLU belong to the convolution.
TEST(Fusion, AProductTakesInTheSumBehindIt) {
  for (const gpu::KernelFamily family : families())
    for (const int64_t channels : {5, 16, 40}) {
      Net net(channels);
      const ValueId v = net.conv(net.x, true);
      const ValueId y = net.binary("add", v, net.conv(net.unary("tanh", v)), true);
      net.finish(net.binary("add", net.conv(y), y));
      expect_fusing_changes_nothing(net, {net.loss, y}, family);
      PlanOptions options;
      options.training = true, options.loss = net.loss, options.outputs = {net.loss};
      ParameterStore store(device(family), net.g, 1);
      EXPECT_FALSE(has(Plan(kernels(family), net.g, store, options), "binary_same"));
    }
}

// A ReLU before a max_pool: its gradient is masked where it is small, which is in the product of
// the layer behind. Windows that overlap and that leave pixels out, and negative numbers whose
// maximum the ReLU makes 0.
TEST(Fusion, TheGradientAfterAReluIsMaskedBehindTheMaxPool) {
  for (const gpu::KernelFamily family : families())
    for (const auto& [window, stride, pad] :
         {std::tuple{2, 2, 0}, {3, 2, 0}, {3, 2, 1}, {3, 3, 0}, {2, 3, 0}, {2, 2, 1}}) {
      const Json windows{{"window", window}, {"stride", stride}, {"pad", pad}};
      PlanOptions options;
      options.training = true;
      const auto masks_of = [&](Net& net, ValueId last, const std::vector<ValueId>& also) {
        const ValueId flat = net.g.add("flatten", Json::object(), {last}, "flat");
        const Json sum{{"function", "sum"}, {"axes", {1}}};
        net.loss = net.g.add("mean_rows", Json::object(),
                             {net.g.add("reduce", sum, {flat}, "rows")}, "loss");
        expect_fusing_changes_nothing(net, {net.loss}, family);
        std::vector<ValueId> outputs{net.loss};
        outputs.insert(outputs.end(), also.begin(), also.end());
        expect_fusing_changes_nothing(net, outputs, family);
        options.loss = net.loss, options.outputs = {net.loss};
        ParameterStore store(device(family), net.g, 1);
        const auto all = kernels_of(Plan(kernels(family), net.g, store, options));
        return std::count_if(all.begin(), all.end(), [](const std::string& kernel) {
          return kernel.find("relu_grad") != std::string::npos;
        });
      };
      Net net(16);
      const ValueId y = net.conv(net.x, true), pooled = net.g.add("max_pool", windows, {y}, "pool");
      EXPECT_EQ(masks_of(net, net.conv(pooled, true), {y, pooled}), 1) << "after the loss alone";
      Net forked(16);  // the ReLU's result goes elsewhere, too: the mask follows the sum
      const ValueId from = forked.conv(forked.x, true);
      const ValueId both = forked.binary("add", forked.g.add("max_pool", windows, {from}, "pool"),
                                         forked.g.add("avg_pool", windows, {from}, "mean"));
      EXPECT_EQ(masks_of(forked, forked.conv(both, true), {from, both}), 2);
    }
}

// Moments that a product finds on its way, beside those of its result: narrow convolutions work by
// pairs of pixels, and the last tile is not full.
TEST(Fusion, ProductsFindTheMomentsOfTheirResults) {
  for (const gpu::KernelFamily family : families())
    for (const int64_t channels : {3, 16, 40})
      for (const bool bias : {false, true}) {
        Net net(channels);
        const ValueId y = net.conv(net.x, false, bias);
        net.finish(net.norm(y));
        PlanOptions options;
        options.training = true, options.loss = net.loss, options.outputs = {y};
        const Results results = run(net, family, options);
        const auto values = results.tensors[0].view<float>();
        const auto c = static_cast<size_t>(channels);
        const auto mean = results.tensors[results.tensors.size() - 2].view<float>(),
                   var = results.tensors.back().view<float>();
        const auto rows = static_cast<double>(values.size() / c);
        for (size_t ch = 0; ch < c; ++ch) {
          double sum = 0, squares = 0;
          for (size_t i = ch; i < values.size(); i += c) sum += values[i];
          for (size_t i = ch; i < values.size(); i += c)
            squares += std::pow(values[i] - sum / rows, 2);
          EXPECT_NEAR(mean[ch], 0.1 * sum / rows, 1e-6);
          EXPECT_NEAR(var[ch], 0.9 + 0.1 * squares / (rows - 1), 1e-5);
        }
        if (family == gpu::KernelFamily::cpu) {
          ParameterStore store(device(family), net.g, 1);
          EXPECT_FALSE(has(Plan(kernels(family), net.g, store, options), "batch_norm_stats"));
        }
      }
}

// The norm's channels are then not the columns of the product.
TEST(Fusion, AViewOfAProductHasMomentsOfItsOwn) {
  for (const gpu::KernelFamily family : families())
    for (const bool narrow : {false, true}) {
      Net net(12);
      const ValueId y = net.conv(net.x, false, false);
      const int64_t all = element_count(net.g.shape(y)) / kBatch, c = narrow ? 6 : all;
      const ValueId view =
          net.g.add("reshape", {{"shape", Json::array({all / c, c})}}, {y}, "view");
      net.finish(net.norm(view));
      PlanOptions options;
      options.training = true, options.loss = net.loss, options.outputs = {y};
      const Results results = run(net, family, options);
      const auto values = results.tensors[0].view<float>();
      const auto mean = results.tensors[results.tensors.size() - 2].view<float>();
      const auto channels = static_cast<size_t>(c);
      ASSERT_EQ(mean.size(), channels);
      for (size_t ch = 0; ch < channels; ++ch) {
        double sum = 0;
        for (size_t i = ch; i < values.size(); i += channels) sum += values[i];
        EXPECT_NEAR(mean[ch], 0.1 * sum / static_cast<double>(values.size() / channels), 1e-6);
      }
    }
}

// Graphs that nobody would write: fusing never changes what they compute.
TEST(Fusion, RandomGraphsComputeTheSame) {
  Rng rng(11);
  // Each graph's kernels are compiled, which takes a sanitized process ten times as long.
  for (int round = 0; round < (kSanitized ? 8 : 40); ++round) {
    Net net(std::array<int64_t, 3>{5, 16, 33}[rng.below(3)]);
    std::vector<ValueId> values{net.x};
    const auto any = [&] {  // rather a late one, so that chains come about
      const auto back = std::min<size_t>(rng.below(4), values.size() - 1);
      return values[values.size() - 1 - back];
    };
    const uint32_t nodes = 3 + rng.below(10);
    for (uint32_t i = 0; i < nodes; ++i) {
      const ValueId a = any(), b = any();
      switch (rng.below(9)) {
        case 0: values.push_back(net.unary("tanh", a)); break;
        case 1: values.push_back(net.unary("relu", a)); break;
        case 2: values.push_back(net.unary("square", net.unary("sigmoid", a))); break;
        case 3: values.push_back(net.binary("add", a, b, rng.below(2) == 0)); break;
        case 4: values.push_back(net.binary("multiply", net.unary("tanh", a), b)); break;
        case 5: values.push_back(net.binary("subtract", a, net.parameter({net.channels}))); break;
        case 6: values.push_back(net.binary("add", net.conv(a), b, rng.below(2) == 0)); break;
        case 7: values.push_back(net.norm(a, rng.below(2) == 0)); break;
        default: values.push_back(net.conv(net.binary("maximum", a, b), rng.below(2) == 0));
      }
    }
    net.finish(net.unary("tanh", values.back()));
    std::vector<ValueId> outputs{net.loss};
    if (rng.below(2)) outputs.push_back(values[1 + rng.below(nodes)]);
    SCOPED_TRACE(cat("round ", round));
    for (const gpu::KernelFamily family : families()) {
      expect_fusing_changes_nothing(net, outputs, family);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace etr::test
