// Weights in 8 or 4 bits: what they become, and products that read them.
#include "graph/quantized.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/json.h"
#include "core/rng.h"
#include "gpu/run_once.h"
#include "graph/plan.h"
#include "support/device.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

using namespace graph;

std::vector<float> back(const std::vector<float>& values, int bits) {
  const auto words = quantize(values, bits);
  EXPECT_EQ(words.size(), quantized_words(static_cast<int64_t>(values.size()), bits));
  std::vector<float> out(values.size());
  dequantize(words, bits, out);
  return out;
}

std::vector<float> random_values(size_t count, uint64_t seed) {
  std::vector<float> out(count);
  Rng rng(seed, 0);
  for (float& value : out) value = rng.uniform(-1, 1) * rng.uniform(0, 1);
  return out;
}

TEST(Quantized, KeepsTheLargestAndIsWithinHalfAStep) {
  for (const int bits : {8, 4})
    for (const size_t count : {1u, 7u, 31u, 32u, 33u, 1000u}) {
      const auto values = random_values(count, count), got = back(values, bits);
      for (size_t block = 0; block * 32 < count; ++block) {
        const size_t end = std::min(count, block * 32 + 32);
        float largest = 0;
        for (size_t i = block * 32; i < end; ++i)
          if (std::abs(values[i]) > std::abs(largest)) largest = values[i];
        const float step = std::abs(largest) / std::ldexp(1.0f, bits - 1);
        for (size_t i = block * 32; i < end; ++i) {
          if (values[i] == largest) {
            EXPECT_EQ(got[i], largest);
          }
          // On the side without the largest one, the last step is missing.
          EXPECT_LE(std::abs(got[i] - values[i]), 1.0001f * step) << i;
          if (values[i] * largest > 0 || std::abs(values[i]) < std::abs(largest) - step) {
            EXPECT_LE(std::abs(got[i] - values[i]), 0.5001f * step) << i;
          }
        }
      }
      EXPECT_EQ(quantize(got, bits), quantize(values, bits)) << "the same bits again";
    }
}

TEST(Quantized, ZerosSignsAndExtremes) {
  for (const int bits : {8, 4}) {
    const std::vector<float> zeros(40, 0.0f);
    EXPECT_EQ(quantize(back(zeros, bits), bits), quantize(zeros, bits));
    for (const float zero : back(zeros, bits)) EXPECT_FALSE(std::signbit(zero));
    for (const float scale : {1.0f, 1e30f, 1e-30f, 1e-44f}) {
      std::vector<float> values(40, scale);
      values[3] = -scale;
      const auto got = back(values, bits);
      EXPECT_EQ(quantize(got, bits), quantize(values, bits));
      EXPECT_EQ(got[0], scale > 1e-40f ? scale : got[0]);
    }
  }
}

// y = relu(x W1 + b) W2 and its gradients, W1 frozen. `bits`: of W1 in memory.
struct QuantizedNet {
  QuantizedNet(int bits, const std::vector<float>& weight) {
    x = g.add_input("x", {5, 24}, DType::f32);
    labels = g.add_input("labels", {5}, DType::i32);
    const auto init = [weight](std::span<float> out, Rng&) {
      std::copy(weight.begin(), weight.end(), out.begin());
    };
    const auto some = [](std::span<float> out, Rng& rng) {
      for (float& value : out) value = rng.uniform(-1, 1);
    };
    w = g.add_parameter("w", {24, 17}, true, init);
    const ValueId b = g.add_parameter("b", {17}, false, some);
    const ValueId h = g.add("dense", {{"relu", true}}, {x, w, b}, "first");
    const ValueId y =
        g.add("dense", Json::object(), {h, g.add_parameter("v", {17, 1}, true, some)}, "second");
    loss = g.add("mean_rows", Json::object(),
                 {g.add("reduce", {{"axes", {1}}}, {y}, "flat"),
                  g.add("label_weights", Json::object(), {labels}, "weights")},
                 "loss");
    g.freeze({"w"});
    if (bits != 32) g.quantize(bits);
  }
  Graph g;
  ValueId x, labels, w, loss;
};

TEST(Quantized, ProductsReadTheRoundedWeights) {
  const auto weight = random_values(24 * 17, 3);
  for (const int bits : {8, 4}) {
    std::vector<std::vector<float>> results;
    for (const bool kept : {true, false}) {
      const QuantizedNet net(kept ? bits : 32, kept ? weight : back(weight, bits));
      const ParameterStore store(device(), net.g, 1);
      EXPECT_EQ(store.stored_bits("w"), kept ? bits : 32);
      EXPECT_EQ(store.stored_bits("b"), 32);
      results.push_back({});
      const Tensor read = store.read("w");
      results.back().assign(read.view<float>().begin(), read.view<float>().end());
      for (const bool recompute : {false, true}) {
        gpu::Kernels kernels(device());
        PlanOptions options;
        options.outputs = {net.loss};
        options.loss = net.loss;
        options.training = true;
        options.recompute = recompute;
        const Plan plan(kernels, net.g, store, options);
        Tensor input(DType::f32, {5, 24});
        const auto values = random_values(5 * 24, 9);
        std::copy(values.begin(), values.end(), input.mutable_view<float>().begin());
        upload(device(), input, plan.tensor(net.x));
        Tensor labels(DType::i32, {5});
        std::fill(labels.mutable_view<int32_t>().begin(), labels.mutable_view<int32_t>().end(), 0);
        upload(device(), labels, plan.tensor(net.labels));
        ops::StepValues values_of_step;
        values_of_step.valid_rows = 5;
        Tensor step(DType::i32, {sizeof(values_of_step) / 4});
        std::memcpy(step.mutable_data(), &values_of_step, sizeof(values_of_step));
        upload(device(), step, {plan.step_values(), step.shape()});
        gpu::run_once(device(), plan.commands());
        for (const char* name : {"b", "v"}) {
          const Tensor gradient = download(device(), store.gradient(name));
          for (const float value : gradient.view<float>()) results.back().push_back(value);
        }
        results.back().push_back(download(device(), plan.tensor(net.loss)).view<float>()[0]);
      }
    }
    EXPECT_EQ(results[0], results[1]) << bits;
  }
}

TEST(Quantized, StoresAreSmallerAndSayWhatDoesNotFit) {
  const auto weight = random_values(24 * 17, 3);
  QuantizedNet net(4, weight);
  ParameterStore store(device(), net.g, 1);
  EXPECT_EQ(store.shape("w"), (Shape{24, 17}));
  EXPECT_LT(store.stored("w").buffer.size_bytes, 24u * 17 * 4 / 6);
  EXPECT_NE(error_text([&] { store.tensor("w"); }).find("is quantised"), std::string::npos);
  Tensor wrong(DType::f32, {24, 17});
  std::fill(wrong.mutable_view<float>().begin(), wrong.mutable_view<float>().end(), INFINITY);
  EXPECT_NE(
      error_text([&] { store.write("w", wrong); }).find("'w' has elements that are not finite"),
      std::string::npos);
  Graph none;
  const ValueId x = none.add_input("x", {1, 2}, DType::f32);
  none.add("dense", Json::object(),
           {x, none.add_parameter("w", {2, 2}, true, [](std::span<float>, Rng&) {})}, "d");
  EXPECT_NE(error_text([&] { none.quantize(8); }).find("none is frozen"), std::string::npos);
}

}  // namespace
}  // namespace etr::test
