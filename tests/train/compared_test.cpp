// Training that compares kernels with the host in its first steps gives the same results.
#include <gtest/gtest.h>

#include "core/log.h"
#include "train/small_learner.h"

namespace etr::test {
namespace {

constexpr const char* kModel = R"({"layers": [{"layer": "conv2d", "filters": 4},
    {"layer": "batch_norm"}, {"layer": "activation", "function": "relu"}, {"layer": "flatten"},
    {"layer": "dense", "units": 10}]})";

std::vector<float> losses_on(const gpu::DeviceOptions& options, const char* model = kModel) {
  train::Learner learner(std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(options)),
                         {parse_json(model, "model"), Json{{"optimizer", "sgd"}, {"momentum", 0.9}},
                          Json{{"learning_rate", 0.1}}, 3, 1000});
  pipeline::Item batch;
  Tensor image(DType::f32, {6, 5, 7, 3});
  for (size_t i = 0; i < static_cast<size_t>(image.count()); ++i)
    image.mutable_view<float>()[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  batch.set("image", image);
  batch.set("label", symbols(6, 0, [](int64_t r, int64_t) { return static_cast<int>(r); }));
  for (int step = 0; step < 6; ++step) learner.step(batch);
  std::vector<float> out;
  for (const auto& metrics : learner.take_metrics(true)) out.push_back(metrics.loss);
  const Tensor y = learner.predict(batch);
  out.insert(out.end(), y.view<float>().begin(), y.view<float>().end());
  return out;
}

int& warnings() {
  static int count = 0;
  return count;
}

TEST(Compared, TheFirstStepIsAStep) {
  gpu::DeviceOptions options = device_options();
  options.compare = gpu::Compare::nothing;
  const std::vector<float> plain = losses_on(options);
  ASSERT_EQ(plain.size(), 6u + 60);
  options.compare = gpu::Compare::kernels;
  set_log_hook([](LogLevel level, const char*) { warnings() += level >= LogLevel::warning; });
  for (const bool apart : {false, true})
    for (const char* wrong : {"", "batch_norm", "optimizer"}) {
      options.lowered.uploads_apart = apart;
      options.lowered.wrong_kernels = wrong;
      warnings() = 0;
      const std::vector<float> compared = losses_on(options);
      ASSERT_EQ(compared.size(), plain.size());
      // A kernel that was compiled again may round differently. The others give equal results.
      for (size_t i = 0; i < plain.size(); ++i)
        EXPECT_NEAR(compared[i], plain[i], *wrong ? 1e-4 * std::abs(plain[i]) : 0) << wrong;
      EXPECT_EQ(warnings() > 0, *wrong != 0) << wrong;
    }
  set_log_hook(nullptr);
}

// A user's own operation that reads beyond the end of its input, where each device may read
// something else.
TEST(Compared, AFaultyOperationIsWarnedOf) {
  static std::vector<std::string> lines;
  lines.clear();
  gpu::DeviceOptions options = device_options();
  options.compare = gpu::Compare::kernels;
  set_log_hook([](LogLevel level, const char* message) {
    if (level >= LogLevel::warning) lines.emplace_back(message);
  });
  losses_on(options, R"({"layers": [{"layer": "flatten"}, {"layer": "glsl", "name": "next",
      "source": "float forward(uint i) { return x0[i + 1]; } float gradient0(uint i) { return dy[i]; }"},
      {"layer": "dense", "units": 10}]})");
  set_log_hook(nullptr);
  ASSERT_FALSE(lines.empty());
  EXPECT_NE(lines[0].find("next: kernel"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("of buffer 0, which has 2520"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace etr::test
