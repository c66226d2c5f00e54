// Rounding of operands, and products of rounded operands.
#include <cmath>
#include <cstring>
#include <limits>

#include "gpu/run_once.h"
#include "graph/parameters.h"
#include "support/op_check.h"

namespace etr::test {
namespace {

using ops::Precision;

std::vector<float> rounded(const std::vector<float>& values, Precision precision,
                           gpu::KernelFamily family) {
  gpu::Kernels& k = kernels(family);
  gpu::Arena arena(k.device(), gpu::MemoryUse::device);
  gpu::CommandList commands;
  ops::Emitter emit(k, arena, commands);
  const auto count = static_cast<uint32_t>(values.size());
  const ops::DeviceTensor x = emit.scratch({count}), y = emit.scratch({count});
  Tensor host(DType::f32, {count});
  std::memcpy(host.mutable_data(), values.data(), values.size() * 4);
  graph::upload(k.device(), host, x);
  emit.for_each("round_to", {ops::reads(x), ops::writes(y)}, count, count,
                {static_cast<uint32_t>(precision)});
  gpu::run_once(k.device(), commands);
  const Tensor out = graph::download(k.device(), y);
  return {out.view<float>().begin(), out.view<float>().end()};
}

TEST(Precision, RoundsToTheNearestEven) {
  std::vector<float> values{0.0f,
                            -0.0f,
                            1.0f,
                            -1.0f,
                            65504.0f,
                            65519.996f,
                            65520.0f,
                            1e30f,
                            -1e30f,
                            3.4e38f,
                            5.9604645e-8f,
                            2.9802322e-8f,
                            2.98023224e-8f * 1.0001f,
                            6.1e-5f,
                            6.103515625e-5f,
                            1.00048828125f,
                            1.001464843f,
                            1.00390625f,
                            1.01171875f,
                            1e-40f,
                            1e-20f};
  Rng rng(3);
  for (int i = 0; i < 4000; ++i)
    values.push_back(std::ldexp(rng.uniform(-1, 1), static_cast<int>(rng.below(60)) - 40));
  for (const gpu::KernelFamily family : families())
    for (const Precision precision : {Precision::bf16, Precision::fp16}) {
      const auto out = rounded(values, precision, family);
      for (size_t i = 0; i < values.size(); ++i) {
        // Devices may take numbers below 1e-38 for 0.
        if (precision == Precision::bf16 && std::abs(values[i]) < 1.2e-38f) continue;
        const auto expected =
            static_cast<float>(round_to(precision, static_cast<double>(values[i])));
        ASSERT_EQ(out[i], expected) << values[i];
        ASSERT_EQ(std::signbit(out[i]), std::signbit(values[i])) << values[i];
      }
      const auto odd = rounded({NAN, INFINITY, -INFINITY}, precision, family);
      EXPECT_TRUE(std::isnan(odd[0]));
      EXPECT_EQ(odd[1], INFINITY);
      EXPECT_EQ(odd[2], -INFINITY);
    }
}

TEST(Precision, ProductsSumRoundedOperandsInFp32) {
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    check_op({.op = "dense",
              .inputs = {{37, 61}, {61, 19}},
              .reference =
                  [](const auto& in) {
                    Doubles y(37 * 19);
                    for (size_t i = 0; i < 37; ++i)
                      for (size_t j = 0; j < 19; ++j)
                        for (size_t k = 0; k < 61; ++k)
                          y[i * 19 + j] += in[0][i * 61 + k] * in[1][k * 19 + j];
                    return y;
                  },
              .precision = precision});
    check_op({.op = "conv2d",
              .options = R"({"pad": 1})",
              .inputs = {{2, 6, 5, 3}, {3, 3, 3, 7}},
              .reference =
                  [](const auto& in) {
                    Doubles y(2 * 6 * 5 * 7);
                    for (int n = 0; n < 2; ++n)
                      for (int oy = 0; oy < 6; ++oy)
                        for (int ox = 0; ox < 5; ++ox)
                          for (int f = 0; f < 7; ++f)
                            for (int t = 0; t < 27; ++t) {
                              const int ky = t / 9, kx = t / 3 % 3, c = t % 3;
                              const int iy = oy + ky - 1, ix = ox + kx - 1;
                              if (iy < 0 || iy >= 6 || ix < 0 || ix >= 5) continue;
                              y[static_cast<size_t>(((n * 6 + oy) * 5 + ox) * 7 + f)] +=
                                  in[0][static_cast<size_t>(((n * 6 + iy) * 5 + ix) * 3 + c)] *
                                  in[1][static_cast<size_t>(t * 7 + f)];
                            }
                    return y;
                  },
              .precision = precision});
  }
}

}  // namespace
}  // namespace etr::test
