// The gradient noise scale: arithmetic, a model for which it is known, and runs that measure it.
#include "train/noise_scale.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/rng.h"
#include "train/band_job.h"
#include "train/small_learner.h"
#include "train/together.h"
#include "train/trainer.h"

namespace etr::test {
namespace {

using train::GradientSquares;
using train::GradientSum;
using train::NoiseScale;

// From the expected values at two batch sizes, |G|^2 and tr S follow exactly.
TEST(NoiseScale, SolvesForBothUnknowns) {
  const double gradient_square = 0.25, variance = 12;
  const auto expected = [&](double rows) { return gradient_square + variance / rows; };
  NoiseScale noise;
  EXPECT_FALSE(noise.value());
  noise.add({8, 64, expected(8), expected(64)});
  noise.add({16, 32, expected(16), expected(32)});
  EXPECT_NEAR(noise.gradient_square(), gradient_square, 1e-12);
  EXPECT_NEAR(noise.variance(), variance, 1e-12);
  EXPECT_NEAR(*noise.value(), 48, 1e-9);
}

// The quotient of the means, not the mean of quotients: a single estimate may be negative.
TEST(NoiseScale, AveragesBeforeItDivides) {
  NoiseScale noise;
  noise.add({1, 2, 10, 4});  // |G|^2 = -2, tr S = 12
  EXPECT_FALSE(noise.value());
  noise.add({1, 2, 10, 7});  // |G|^2 = 4, tr S = 6
  EXPECT_DOUBLE_EQ(noise.gradient_square(), 1);
  EXPECT_DOUBLE_EQ(noise.variance(), 9);
  EXPECT_DOUBLE_EQ(*noise.value(), 9);
}

TEST(NoiseScale, FollowsARunAndGoesOnFromACheckpoint) {
  NoiseScale noise(0.5);
  noise.add({1, 2, 10, 7});
  NoiseScale again(0.5);
  const Json saved = noise.json();
  again.load(JsonMembers(saved, "the test", Code::corrupt_data));
  for (NoiseScale* one : {&noise, &again}) one->add({1, 2, 10, 9});  // |G|^2 = 8, tr S = 2
  EXPECT_DOUBLE_EQ(noise.gradient_square(), (0.5 * 4 + 8) / 1.5);
  EXPECT_EQ(noise.json(), again.json());
}

TEST(GradientSum, MeasuresBatchesAndTheirMean) {
  GradientSum sum;
  sum.add(std::vector<float>{2, 0}, 2);
  sum.add(std::vector<float>{0, 6}, 2);
  const GradientSquares squares = sum.squares(5);
  EXPECT_EQ(squares.small_rows, 5);
  EXPECT_EQ(squares.large_rows, 10);
  EXPECT_DOUBLE_EQ(squares.small, (1 + 9) / 2.0);
  EXPECT_DOUBLE_EQ(squares.large, 0.25 + 2.25);
}

// A dense layer with the constant input 1 outputs its weights w. But for a constant factor, the
// loss is half of the squared distance between w and a target t that is drawn around a mean. So the
// gradient of an example is w - t, |G|^2 = |w - mean|^2, and tr S is the sum of the targets'
// variances.
TEST(NoiseScale, OfAQuadraticIsWhatItIs) {
  constexpr int64_t kRows = 64, kUnits = 8;
  constexpr float kMean = 0.5f, kSpread = 2;
  train::Learner learner = make_learner(
      R"({"layers": [{"layer": "dense", "units": 8, "bias": false}], "inputs": ["x"],
          "loss": {"loss": "mse", "target": "y"}})",
      R"({"optimizer": "sgd"})");
  Rng rng(11);
  const auto batch = [&] {
    Tensor x(DType::f32, {kRows, 1}), y(DType::f32, {kRows, kUnits});
    for (float& value : x.mutable_view<float>()) value = 1;
    for (float& value : y.mutable_view<float>())
      value = kMean + kSpread * static_cast<float>(rng.normal());
    pipeline::Item item;
    item.set("x", std::move(x));
    item.set("y", std::move(y));
    return item;
  };
  learner.prepare(batch());
  const Tensor w = learner.weights("")[0].tensor;
  NoiseScale noise;
  for (int i = 0; i < 40; ++i) noise.add(*learner.measure_noise(batch(), 4));
  double distance = 0;
  for (const float value : w.view<float>()) distance += std::pow(value - kMean, 2);
  const double expected = kUnits * kSpread * kSpread / distance;  // constants of the loss cancel
  EXPECT_NEAR(*noise.value() / expected, 1, 0.25) << "expected " << expected;
  const Tensor after = learner.weights("")[0].tensor;
  for (size_t i = 0; i < kUnits; ++i) EXPECT_EQ(w.view<float>()[i], after.view<float>()[i]);
  // The same with whole batches as the small ones.
  NoiseScale by_batches;
  for (int i = 0; i < 20; ++i) by_batches.add(*learner.measure_noise({batch(), batch(), batch()}));
  EXPECT_NEAR(*by_batches.value() / expected, 1, 0.25);
}

Json noisy_job(const TempDir& dir, const std::string& out, int every) {
  Json job = job_of(dir, 32, out);
  job["model"]["layers"].insert(job["model"]["layers"].begin() + 1, Json{{"layer", "batch_norm"}});
  job["model"]["layers"].insert(job["model"]["layers"].begin() + 3,
                                Json{{"layer", "dropout"}, {"rate", 0.1}});
  job["train"]["noise_scale_every"] = every;
  return job;
}

void run_to_end(const Json& job, bool resume = false) {
  train::Trainer trainer(shared_kernels(), train::Job::parse(job.dump(), "test"), resume);
  while (trainer.next_event().kind != train::EventKind::end) continue;
}

// Measuring changes neither running statistics nor random numbers: the losses are the same bit for
// bit. A resumed run measures the same values.
TEST(NoiseScale, ARunIsTheSameWithItAndResumes) {
  const TempDir dir;
  const std::string plain = dir.path() + "/plain", measured = dir.path() + "/measured",
                    parts = dir.path() + "/parts";
  run_to_end(noisy_job(dir, plain, 0));
  run_to_end(noisy_job(dir, measured, 3));
  EXPECT_EQ(losses_of(plain), losses_of(measured));
  Json first = noisy_job(dir, parts, 3);
  first["train"]["steps"] = 8;
  first["train"]["planned_steps"] = 15;
  run_to_end(first);
  run_to_end(noisy_job(dir, parts, 3), /*resume=*/true);
  const auto whole = steps_of(measured), resumed = steps_of(parts);
  ASSERT_EQ(whole.size(), resumed.size());
  int rows = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i].contains("noise_scale"), (i + 1) % 3 == 0) << i;
    if (!whole[i].contains("noise_scale")) continue;
    ++rows;
    for (const char* key : {"loss", "noise_scale", "gradient_square", "gradient_variance"})
      EXPECT_EQ(whole[i][key], resumed[i][key]) << key << " of step " << i + 1;
    EXPECT_GT(whole[i]["gradient_variance"].get<double>(), 0);
  }
  EXPECT_EQ(rows, 5);
}

// The steps in flight end before the measurement, in which the training clock stands still.
TEST(NoiseScale, LeavesTheStepsInTheTrainingTime) {
  const TempDir dir;
  run_to_end(noisy_job(dir, dir.path("out"), 1));
  const Json last = steps_of(dir.path("out")).back();
  EXPECT_GE(last["seconds"].get<double>(), 0.9 * last["busy_seconds"].get<double>()) << last;
}

// With images on the device, and batches that are views of them.
TEST(NoiseScale, IsMeasuredBehindDeviceEcho) {
  const TempDir dir;
  const auto losses = [&](const std::string& out, int every) {
    Json job = job_of(dir, 32, dir.path() + out);
    job["train"]["noise_scale_every"] = every;
    Json& stages = job["pipeline"]["stages"];
    stages.insert(stages.begin() + 3,
                  Json{{"stage", "echo"}, {"factor", 2}, {"buffer", 64}, {"device", true}});
    run_to_end(job);
    return losses_of(dir.path() + out);
  };
  EXPECT_EQ(losses("/plain", 0), losses("/measured", 5));
  for (const Json& row : steps_of(dir.path() + "/measured"))
    EXPECT_GT(row.value("gradient_variance", 1.0), 0) << row;
}

TEST(NoiseScale, IsRefusedWhereRanksTrainTogether) {
  const TempDir dir;
  Json job = job_of(dir, 32);
  job["train"]["noise_scale_every"] = 5;
  const auto ranks = together(2, [&](int) { return job; });
  ASSERT_TRUE(ranks[0].error && ranks[1].error);
  const std::string told = cat(ranks[0].error->what(), ranks[1].error->what());
  EXPECT_NE(told.find("'noise_scale_every'"), std::string::npos) << told;
}

}  // namespace
}  // namespace etr::test
