#include "parallel/compression.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "exchange/numbers.h"
#include "gpu/run_once.h"
#include "nn/init.h"
#include "support/device.h"

namespace etr::test {
namespace {

using exchange::BFloat16;
using exchange::Float16;
using parallel::Bucket;
using parallel::Compression;
using parallel::Compressor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One rank's gradients of seven scalars, and what the rank sends of them.
class Rank {
 public:
  Rank(Compression format, int ranks, bool feedback = true)
      : store_(device(), graph_of(), 1),
        compressor_(store_, format, ranks, feedback),
        memory_(device(), gpu::MemoryUse::readback),
        wire_(memory_.allocate(Compressor::bytes(bucket_))),
        values_(memory_.allocate(sizeof(ops::StepValues))),
        divisor_(memory_.allocate(sizeof(float))),
        scale_(memory_.allocate(sizeof(float))) {
    set(divisor_, 1), set(scale_, 1);
    const Compressor::Step step{values_, divisor_, scale_};
    ops::Emitter pack(kernels(), memory_, pack_), unpack(kernels(), memory_, unpack_);
    compressor_.emit_pack(pack, bucket_, wire_, step);
    compressor_.emit_unpack(unpack, bucket_, wire_, step);
  }

  static constexpr uint32_t kCount = 7;
  static void set(const gpu::Buffer& buffer, float value) {
    std::memcpy(buffer.host, &value, sizeof value);
  }
  const gpu::Buffer& divisor() const { return divisor_; }
  const gpu::Buffer& scale() const { return scale_; }
  void forget() const { compressor_.forget(); }

  // Returns the words that this rank would send for these gradients.
  std::span<uint16_t> pack(const std::vector<float>& gradients, uint32_t update = 1) {
    Tensor host(DType::f32, {kCount});
    std::copy(gradients.begin(), gradients.end(), host.mutable_view<float>().begin());
    graph::upload(device(), host, store_.gradient("w"));
    ops::StepValues now;
    now.update = update;
    std::memcpy(values_.host, &now, sizeof now);
    gpu::run_once(device(), pack_);
    return {reinterpret_cast<uint16_t*>(wire_.host), kCount};
  }

  std::vector<float> unpack() {
    gpu::run_once(device(), unpack_);
    const Tensor out = graph::download(device(), store_.gradient("w"));
    return {out.view<float>().begin(), out.view<float>().end()};
  }

 private:
  static const graph::Graph& graph_of() {
    static const graph::Graph g = [] {
      graph::Graph made;
      made.add_parameter("w", {kCount}, true, nn::constant(0.5f));
      return made;
    }();
    return g;
  }

  graph::ParameterStore store_;
  Compressor compressor_;
  const Bucket bucket_{0, {{0, kCount}}};
  gpu::Arena memory_;
  gpu::Buffer wire_, values_, divisor_, scale_;
  gpu::CommandList pack_, unpack_;
};

template <typename T>
void expect_packed(Compression format) {
  Rank rank(format, 2, /*feedback=*/false);
  Rank::set(rank.divisor(), 0.25f);
  const std::vector<float> gradients{1, -3.14159f, 2e-6f, 0, -7e-8f, 1000.123f, 3e-39f};
  const auto words = rank.pack(gradients);
  std::vector<float> expected;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const T wanted = T::of(gradients[i] * 2);
    EXPECT_EQ(words[i], wanted.bits) << i;
    expected.push_back(wanted.value());
  }
  EXPECT_EQ(rank.unpack(), expected);
}

TEST(Compression, RoundsARanksShareToTheNearest) {
  expect_packed<BFloat16>(Compression::bf16);
  expect_packed<Float16>(Compression::fp16);
}

TEST(Compression, WhatIsTooLargeTravelsInSeveralSteps) {
  Rank rank(Compression::fp16, 1);
  EXPECT_EQ(Float16{rank.pack({-150000})[0]}.value(), -65504);
  EXPECT_EQ(Float16{rank.pack({0})[0]}.value(), -65504);
  EXPECT_EQ(Float16{rank.pack({0})[0]}.value(), -150000 + 2 * 65504);
}

// Returns the mean that the ranks receive, all of which have this gradient.
float mean_of(const std::vector<std::unique_ptr<Rank>>& ranks, exchange::Number number,
              float gradient) {
  const auto sum = ranks[0]->pack({gradient});
  for (size_t i = 1; i < ranks.size(); ++i)
    exchange::reduce(number, exchange::Reduction::sum, sum.data(), sum.data(),
                     ranks[i]->pack({gradient}).data(), sum.size());
  return ranks[0]->unpack()[0];
}

// The sum of what the ranks send is finite, and everything arrives.
TEST(Compression, WhatIsTooLargeTravelsFromAllRanksInSeveralSteps) {
  const struct {
    Compression format;
    exchange::Number number;
    float large;
  } cases[] = {{Compression::fp16, exchange::Number::f16, 150000},
               {Compression::bf16, exchange::Number::bf16, 3.4e38f}};
  for (const auto& [format, number, large] : cases)
    for (const int count : {2, 3, 7}) {
      std::vector<std::unique_ptr<Rank>> ranks;
      for (int i = 0; i < count; ++i) ranks.push_back(std::make_unique<Rank>(format, count));
      double arrived = 0;
      for (int step = 0; step < 5; ++step) {
        const float mean = mean_of(ranks, number, step == 0 ? large : 0);
        EXPECT_TRUE(std::isfinite(mean)) << count << " ranks, step " << step;
        arrived += mean;
      }
      EXPECT_NEAR(arrived / large, 1, 1e-2) << count << " ranks";
    }
}

TEST(Compression, WhatIsNotFiniteTravelsAndLeavesNothingBehind) {
  for (const Compression format : {Compression::bf16, Compression::fp16}) {
    Rank rank(format, 1);
    rank.pack({1.0001f, 0, 0});
    rank.pack({kInfinity, -kInfinity, std::nanf("")});
    const auto found = rank.unpack();
    for (size_t i = 0; i < 3; ++i) EXPECT_FALSE(std::isfinite(found[i])) << i;
    rank.pack({0, 0, 0});
    const auto after = rank.unpack();
    EXPECT_NEAR(after[0], 1e-4, 1e-6);
    EXPECT_EQ(after[1], 0);
    EXPECT_EQ(after[2], 0);
  }
}

TEST(Compression, StepsWithoutAnUpdateChangeNothing) {
  Rank rank(Compression::bf16, 1);
  rank.pack({1.001f});
  const uint16_t word = rank.pack({5}, /*update=*/0)[0];
  EXPECT_EQ(word, BFloat16::of(1.001f).bits);
  EXPECT_EQ(rank.unpack()[0], 5);
  rank.pack({0});
  EXPECT_NEAR(rank.unpack()[0], 0.001, 1e-5);
}

// Rounding errors are kept without the loss scale, which may change between steps.
TEST(Compression, FollowsTheLossScale) {
  Rank rank(Compression::bf16, 1);
  Rank::set(rank.scale(), 1024);
  rank.pack({1024 * 1.001f});
  Rank::set(rank.scale(), 2);
  rank.pack({0});
  EXPECT_NEAR(rank.unpack()[0], 2 * 0.001, 2e-5);
}

TEST(Compression, ForgetsWhatIsLeft) {
  Rank rank(Compression::bf16, 1);
  rank.pack({1.001f});
  rank.forget();
  rank.pack({0});
  EXPECT_EQ(rank.unpack()[0], 0);
}

// Two ranks pull a weight towards 3, weakly, and with strength 1 in opposite directions. Returns
// the weight after these steps.
float weight_after(int steps, bool feedback) {
  Rank first(Compression::bf16, 2, feedback), second(Compression::bf16, 2, feedback);
  float weight = 3.9f;
  for (int step = 0; step < steps; ++step) {
    const float pull = (weight - 3) / 512;
    const auto a = first.pack({1 + pull}), b = second.pack({-1 + pull});
    exchange::reduce(exchange::Number::bf16, exchange::Reduction::sum, a.data(), a.data(), b.data(),
                     a.size());
    weight -= 16 * first.unpack()[0];
  }
  return weight;
}

TEST(Compression, WithoutFeedbackWhatIsSmallIsLostForGood) {
  EXPECT_EQ(weight_after(300, false), 3.9f);
  EXPECT_NEAR(weight_after(300, true), 3, 0.1);
}

TEST(Compression, NamesFormats) {
  EXPECT_EQ(parallel::compression_named("fp16"), Compression::fp16);
  EXPECT_THROW(parallel::compression_named("int8"), Error);
}

}  // namespace
}  // namespace etr::test
